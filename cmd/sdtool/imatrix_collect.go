package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sdtool/sdtool/engine"
	"github.com/sdtool/sdtool/engine/collect"
	"github.com/sdtool/sdtool/imatrix"
	"github.com/sdtool/sdtool/native"
	"github.com/sdtool/sdtool/writer"
)

type collectFlags struct {
	model      modelFlags
	sampling   samplingFlags
	out        imatrixOutput
	prompt     string
	prompts    string
	seed       int64
	batch      int
	in         []string
	include    []string
	exclude    []string
	stepWeight string
	shard      string
	images     string
	every      int
	resume     bool
	restart    bool
	progress   string
}

func newImatrixCollectCommand(a *app) *cobra.Command {
	f := &collectFlags{}
	cmd := &cobra.Command{
		Use:   "collect -m MODEL --prompts FILE -o OUT",
		Short: "Collect an importance matrix by generating from prompts",
		Long: `Generates from each prompt and adds up how strongly every weight's input columns are driven. The result has the
names of stable-diffusion.cpp's own and can be merged with those.

Prompts come one a line, or as JSON lines {"prompt":"…","negative":"…","width":512,"height":512,"steps":20,"seed":1,"cfg":7}.
Without --prompts and -p a built-in set of 32 is used. Prompt i has the seed --seed + i - 1.

Finished prompts are kept in OUT.checkpoint every --checkpoint-every prompts and when the run is interrupted; --resume
goes on from there. An interrupt also writes what there is to OUT. With --shard i/n several machines share the
prompts, and 'sdtool imatrix merge' adds their files up.

A VAE is needed for --images only.`,
		Example: `  sdtool imatrix collect -m sd15.safetensors -o sd15.imatrix.gguf
  sdtool imatrix collect -m sdxl.safetensors --prompts p.jsonl --steps 20 -W 1024 -H 1024 --images look -o sdxl.dat
  sdtool imatrix collect -m m.gguf --prompts p.txt --shard 2/4 -o part2.gguf`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runCollect(cmd, f) },
	}
	f.model.register(cmd)
	fs := cmd.Flags()
	fs.StringVar(&f.prompts, "prompts", "", "file of prompts (default: a built-in set)")
	fs.StringVarP(&f.prompt, "prompt", "p", "", "a single prompt instead")
	f.sampling.register(cmd)
	fs.Int64VarP(&f.seed, "seed", "s", 1, "seed of the first prompt; each further one has the next")
	f.batch = 1
	intVar(fs, &f.batch, "batch-count", "b", 1, engine.MaxBatch, "pictures for each prompt")
	f.out.register(cmd)
	fs.StringArrayVar(&f.in, "imatrix-in", nil, "importance matrix to add to; may be repeated")
	fs.StringArrayVar(&f.include, "include", nil, "only weights whose name this expression finds; may be repeated")
	fs.StringArrayVar(&f.exclude, "exclude", nil, "without weights whose name this expression finds; may be repeated")
	fs.StringVar(&f.stepWeight, "step-weight", "uniform", "how often steps count: uniform, early, late or a list as 1,1,2")
	fs.StringVar(&f.shard, "shard", "", "take part i of n of the prompts: i/n")
	fs.StringVar(&f.images, "images", "", "folder to keep the pictures in")
	f.every = 8
	intVar(fs, &f.every, "checkpoint-every", "", 0, 1<<30, "prompts between checkpoints; 0 is only when interrupted")
	fs.BoolVar(&f.resume, "resume", false, "go on from OUT.checkpoint, skipping finished prompts")
	fs.BoolVar(&f.restart, "restart", false, "throw OUT.checkpoint away")
	progressFlag(cmd, &f.progress)
	// stable-diffusion.cpp's spellings.
	fs.StringArrayVar(&f.in, "imat-in", nil, "the same as --imatrix-in")
	fs.StringVar(&f.out.path, "imat-out", "", "the same as -o")
	fs.Lookup("imat-in").Hidden, fs.Lookup("imat-out").Hidden = true, true
	return cmd
}

// collection is one run of the command.
type collection struct {
	app     *app
	flags   *collectFlags
	options collect.Options
	total   *imatrix.Accumulator
	print   string // fingerprint of what is run
	done    []int
	since   int // prompts finished since the last checkpoint
	info    imatrix.Info
}

func (a *app) runCollect(cmd *cobra.Command, f *collectFlags) error {
	c := &collection{app: a, flags: f, total: imatrix.NewAccumulator()}
	if err := c.prepare(cmd); err != nil {
		return err
	}
	ctx := cmd.Context()
	m, lib, err := f.model.load(ctx, a, f.images == "", f.progress)
	if err != nil {
		return err
	}
	defer m.Close()
	c.info.Provenance["sdtool.model"] = m.Traits().Name
	return c.run(ctx, lib, m)
}

// prepare checks everything that can be checked before the model is loaded.
func (c *collection) prepare(cmd *cobra.Command) error {
	f := c.flags
	if _, err := f.out.form(); err != nil {
		return err
	}
	if err := f.model.check(); err != nil {
		return err
	}
	var err error
	if c.options.Params, err = f.sampling.params(cmd); err != nil {
		return err
	}
	c.options.Params.Seed, c.options.Params.Batch = f.seed, f.batch
	if c.options.Weights, err = collect.ParseStepWeights(f.stepWeight); err != nil {
		return usagef("--step-weight: %w", err)
	}
	if c.options.Filter.Include, err = expressions("--include", f.include); err != nil {
		return err
	}
	if c.options.Filter.Exclude, err = expressions("--exclude", f.exclude); err != nil {
		return err
	}
	if err := c.readPrompts(); err != nil {
		return err
	}
	if _, err := os.Lstat(f.out.path); err == nil && !f.out.overwrite && !f.resume {
		return fmt.Errorf("%s exists: give another -o, or --overwrite", f.out.path)
	}
	if f.images != "" {
		if err := os.MkdirAll(f.images, 0o755); err != nil {
			return err
		}
	}
	return c.loadMatrices()
}

func expressions(flag string, texts []string) ([]*regexp.Regexp, error) {
	var list []*regexp.Regexp
	for _, t := range texts {
		re, err := regexp.Compile(t)
		if err != nil {
			return nil, usagef("%s: %w", flag, err)
		}
		list = append(list, re)
	}
	return list, nil
}

func (c *collection) readPrompts() error {
	f := c.flags
	list, origin := collect.Builtin(), "built-in prompts"
	switch {
	case f.prompt != "" && f.prompts != "":
		return usagef("-p and --prompts exclude each other")
	case f.prompt != "":
		list, origin = []collect.Prompt{{Text: f.prompt}}, "a single prompt"
	case f.prompts != "":
		var err error
		if list, err = collect.ReadPrompts(f.prompts); err != nil {
			return err
		}
		origin = filepath.Base(f.prompts)
	}
	c.options.Prompts = list
	if f.shard != "" {
		part, whole, ok := strings.Cut(f.shard, "/")
		i, err1 := strconv.Atoi(part)
		n, err2 := strconv.Atoi(whole)
		if !ok || err1 != nil || err2 != nil {
			return usagef("--shard %s: want i/n, as 2/4", f.shard)
		}
		var err error
		if c.options.Prompts, c.options.Index, err = collect.Shard(list, i, n); err != nil {
			return usagef("--shard: %w", err)
		}
		if len(c.options.Prompts) == 0 {
			return fmt.Errorf("%w in shard %s: there are %d", collect.ErrNoPrompts, f.shard, len(list))
		}
	}
	if err := c.fingerprint(list); err != nil {
		return err
	}
	c.info = imatrix.Info{Datasets: []string{origin}, Provenance: map[string]string{
		"sdtool.version": versionString(), "sdtool.prompts": strconv.Itoa(len(c.options.Prompts)),
	}}
	return nil
}

// fingerprint covers all that makes the statistics what they are, but for the
// model itself, so that a checkpoint is not continued with other options.
func (c *collection) fingerprint(list []collect.Prompt) error {
	f := c.flags
	models := make([]string, 0, 1)
	for _, path := range f.model.inputs {
		if path != "" {
			models = append(models, filepath.Base(path))
		}
	}
	text, err := json.Marshal([]any{list, c.options.Params, f.sampling.method, f.sampling.scheduler, f.stepWeight, f.shard, f.include, f.exclude, models, f.model.flowShift, filepath.Base(f.model.tokenizer)})
	sum := sha256.Sum256(text)
	c.print = hex.EncodeToString(sum[:16])
	return err
}

// Keys under which a checkpoint says what it is of.
const (
	keyFingerprint = "sdtool.collect.fingerprint"
	keyFinished    = "sdtool.collect.finished"
)

func (c *collection) checkpointPath() string { return c.flags.out.path + ".checkpoint" }

// loadMatrices loads the checkpoint, or the matrices to add to.
func (c *collection) loadMatrices() error {
	f := c.flags
	path := c.checkpointPath()
	_, err := os.Lstat(path)
	switch {
	case err == nil && f.restart:
		if err := os.Remove(path); err != nil {
			return err
		}
	case err == nil && f.resume:
		return c.loadCheckpoint(path)
	case err == nil:
		return fmt.Errorf("%s is left from an earlier run: --resume goes on from it, --restart throws it away", path)
	case f.resume:
		c.app.say("nothing to resume: there is no %s", path)
	}
	files, closeAll, err := openMatrices(f.in)
	if err != nil {
		return err
	}
	defer closeAll()
	for _, file := range files {
		if err := c.total.Load(file); err != nil {
			return err
		}
	}
	return nil
}

func (c *collection) loadCheckpoint(path string) error {
	file, err := imatrix.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	p := file.Info().Provenance
	if p[keyFingerprint] != c.print {
		return fmt.Errorf("%s is of a run with other prompts or options: --restart throws it away", path)
	}
	if err := json.Unmarshal([]byte(p[keyFinished]), &c.done); err != nil {
		return fmt.Errorf("%s: finished prompts: %w", path, err)
	}
	c.options.Done = make(map[int]bool)
	for _, i := range c.done {
		c.options.Done[i] = true
	}
	c.app.say("%s finished earlier", plural(len(c.done), "prompt"))
	return c.total.Load(file)
}

// checkpoint writes what is finished, in the GGUF form, which has room for it.
func (c *collection) checkpoint() error {
	if len(c.done) == 0 {
		return nil
	}
	finished, err := json.Marshal(c.done)
	if err != nil {
		return err
	}
	set, err := c.total.Snapshot(imatrix.Info{Provenance: map[string]string{keyFingerprint: c.print, keyFinished: string(finished)}})
	if err != nil {
		return err
	}
	c.since = 0
	return writer.WriteFile(c.checkpointPath(), writer.FileOptions{Overwrite: true}, func(w io.Writer) error {
		_, err := imatrix.WriteGGUF(w, set)
		return err
	})
}

func (c *collection) run(ctx context.Context, lib *native.Library, m *engine.Model) error {
	f, a := c.flags, c.app
	o := &c.options
	n := len(o.Prompts)
	o.Before = func(i int, p engine.Params) {
		a.say("prompt %d of %d, seed %d, %d by %d: %s", i+1, n, p.Seed, p.Width, p.Height, p.Prompt)
	}
	o.Step = func(s engine.Step) { a.say("  step %d of %d: %s", s.Step, s.Steps, speed(s.Took)) }
	if f.images != "" {
		o.Picture = func(index, i int, p engine.Params, img *image.NRGBA) error {
			p.Seed += int64(i)
			return writePNG(filepath.Join(f.images, fmt.Sprintf("%04d_%d.png", index+1, i+1)), img, parameters(p, m))
		}
	}
	o.Finished = func(index int, took time.Duration) error {
		c.done = append(c.done, index)
		c.since++
		if f.every > 0 && c.since >= f.every && len(c.done) < n {
			return c.checkpoint()
		}
		return nil
	}
	err := collect.Run(ctx, lib, m, c.total, *o)
	if err != nil {
		return errors.Join(err, c.stopped(ctx, m))
	}
	if err := c.write(m); err != nil {
		return err
	}
	if err := os.Remove(c.checkpointPath()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// stopped keeps what is finished: in the checkpoint, and after an interrupt in
// the output too. A failure leaves an earlier output as it was.
func (c *collection) stopped(ctx context.Context, m *engine.Model) error {
	if len(c.done) == 0 {
		c.app.say("no prompt was finished; nothing is written")
		return nil
	}
	if err := c.checkpoint(); err != nil {
		return err
	}
	c.app.say("%s of %d kept in %s; --resume goes on from there", plural(len(c.done), "finished prompt"), len(c.options.Prompts), c.checkpointPath())
	if ctx.Err() == nil {
		return nil
	}
	return c.write(m)
}

func (c *collection) write(m *engine.Model) error {
	c.info.Provenance["sdtool.prompts"] = strconv.Itoa(len(c.done))
	set, err := c.total.Snapshot(c.info)
	if err != nil {
		return err
	}
	out := c.flags.out
	out.overwrite = out.overwrite || c.flags.resume
	if err := out.write(c.app.summary(), set, c.flags.in); err != nil {
		return err
	}
	cover, err := collect.Cover(m, c.options.Filter, set)
	if err != nil {
		return err
	}
	c.app.say("coverage: %d of %d weights, %d to %d calls each", cover.Seen, cover.Expected, cover.Calls[0], cover.Calls[1])
	c.list("not driven by any prompt", cover.Missing)
	c.list("seen with fewer rows than columns", cover.Weak)
	return nil
}

// list prints names, all of them with --verbose.
func (c *collection) list(what string, names []string) {
	if len(names) == 0 {
		return
	}
	shown := names
	if !c.app.verbose && len(shown) > 3 {
		shown = shown[:3]
	}
	more := ""
	if len(shown) < len(names) {
		more = " …"
	}
	c.app.say("%s: %d: %s%s", what, len(names), strings.Join(shown, ", "), more)
}
