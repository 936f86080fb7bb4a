package main

import (
	"context"
	"fmt"
	"image"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sdtool/sdtool/engine"
	"github.com/sdtool/sdtool/engine/rng"
	"github.com/sdtool/sdtool/engine/sample"
)

// samplingFlags say how to generate; their names are stable-diffusion.cpp's.
type samplingFlags struct {
	negative   string
	width      int
	height     int
	steps      int
	guidance   float32
	distilled  float32
	method     string
	scheduler  string
	sigmas     []float32
	eta        float32
	args       string
	rng        string
	samplerRNG string
	clipSkip   int
}

func (f *samplingFlags) register(cmd *cobra.Command) {
	d := engine.DefaultParams()
	fs := cmd.Flags()
	fs.StringVarP(&f.negative, "negative-prompt", "n", "", "what to steer away from")
	f.width, f.height, f.steps = d.Width, d.Height, d.Steps
	intVar(fs, &f.width, "width", "W", 1, engine.MaxSide, "width in pixels, rounded up to what the model can make")
	intVar(fs, &f.height, "height", "H", 1, engine.MaxSide, "height in pixels")
	intVar(fs, &f.steps, "steps", "", 1, 10000, "sampling steps")
	fs.Float32Var(&f.guidance, "cfg-scale", 0, "classifier-free guidance; 1 is without (default: 7, but 1 for FLUX)")
	fs.Float32Var(&f.distilled, "guidance", d.Distilled, "guidance that distilled models, as FLUX dev, are told")
	fs.StringVar(&f.method, "sampling-method", "", "sampler: "+list(sample.Methods())+" (default: the model's)")
	fs.StringVar(&f.scheduler, "scheduler", "", "noise levels: "+list(sample.Schedulers())+" (default: the sampler's)")
	fs.Float32SliceVar(&f.sigmas, "sigmas", nil, "noise levels themselves, falling, ending in 0")
	fs.Float32Var(&f.eta, "eta", 0, "noise added back by samplers that do so (default: the sampler's)")
	fs.StringVar(&f.args, "extra-sample-args", "", "key=value,… for single samplers and schedulers")
	fs.StringVar(&f.rng, "rng", d.RNG.String(), "random numbers: std_default, cuda or cpu")
	fs.StringVar(&f.samplerRNG, "sampler-rng", "", "random numbers of the sampler (default: --rng)")
	fs.IntVar(&f.clipSkip, "clip-skip", 0, "layers of the text encoder from the end to stop at (default: the model's)")
}

// list joins the names of values.
func list[T fmt.Stringer](all []T) string {
	names := make([]string, len(all))
	for i, v := range all {
		names[i] = v.String()
	}
	return strings.Join(names, ", ")
}

// params checks the flags; the prompt is filled in later.
func (f *samplingFlags) params(cmd *cobra.Command) (engine.Params, error) {
	p := engine.DefaultParams()
	p.Negative, p.Width, p.Height, p.Steps, p.Guidance = f.negative, f.width, f.height, f.steps, f.guidance
	p.Distilled, p.Sigmas, p.ClipSkip = f.distilled, f.sigmas, max(f.clipSkip, 0)
	if !cmd.Flags().Changed("cfg-scale") {
		p.Guidance = engine.ModelGuidance
	} else if f.guidance < 0 {
		return p, usagef("--cfg-scale %g: want 0 or more", f.guidance)
	}
	if cmd.Flags().Changed("eta") {
		p.Eta = &f.eta
	}
	var err error
	if f.method != "" {
		m, err := sample.ParseMethod(f.method)
		if err != nil {
			return p, usagef("--sampling-method: %w", err)
		}
		p.Method = &m
	}
	if f.scheduler != "" {
		s, err := sample.ParseScheduler(f.scheduler)
		if err != nil {
			return p, usagef("--scheduler: %w", err)
		}
		p.Scheduler = &s
	}
	if p.Args, err = sample.ParseArgs(f.args); err != nil {
		return p, usagef("--extra-sample-args: %w", err)
	}
	if p.RNG, err = rng.ParseKind(f.rng); err != nil {
		return p, usagef("--rng: %w", err)
	}
	if f.samplerRNG != "" {
		k, err := rng.ParseKind(f.samplerRNG)
		if err != nil {
			return p, usagef("--sampler-rng: %w", err)
		}
		p.SamplerRNG = &k
	}
	return p, nil
}

// fit rounds the size up to what the model can make and says so.
func (a *app) fit(p *engine.Params, t engine.Traits) {
	w, h := t.FitSize(p.Width, p.Height)
	if w != p.Width || h != p.Height {
		a.warn(fmt.Sprintf("size %d by %d rounded up to %d by %d, multiples of %d", p.Width, p.Height, w, h, t.Multiple))
		p.Width, p.Height = w, h
	}
}

type generateFlags struct {
	model        modelFlags
	sampling     samplingFlags
	prompt       string
	promptFile   string
	seed         int64
	batch        int
	output       string
	preview      string
	previewEvery int
	progress     string
}

func newGenerateCommand(a *app) *cobra.Command {
	f := &generateFlags{}
	cmd := &cobra.Command{
		Use:   "generate -m MODEL -p PROMPT -o OUT.png",
		Short: "Generate pictures with a model",
		Long: `Generate pictures from a prompt. The options are those of stable-diffusion.cpp's command line, and the same options
give the same picture. (word:1.3), (word) and [word] weigh parts of a prompt; BREAK starts a new chunk.

PNG files carry the parameters in a text chunk.`,
		Example: `  sdtool generate -m sd15.safetensors -p "a lighthouse in a storm" -o out.png
  sdtool generate -m sdxl-q4_K.gguf -p "a red fox" -n blurry -W 1024 -H 1024 --steps 25 --sampling-method dpm++2m --scheduler karras -s 7 -b 4 -o fox_%02d.png`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runGenerate(cmd, f) },
	}
	f.model.register(cmd)
	fs := cmd.Flags()
	fs.StringVarP(&f.prompt, "prompt", "p", "", "what to make a picture of")
	fs.StringVar(&f.promptFile, "prompt-file", "", "file that holds the prompt")
	f.sampling.register(cmd)
	fs.Int64VarP(&f.seed, "seed", "s", 42, "seed of the first picture; each further one has the next; negative is random")
	f.batch = 1
	intVar(fs, &f.batch, "batch-count", "b", 1, engine.MaxBatch, "pictures to make")
	fs.StringVarP(&f.output, "output", "o", "output.png", "file to write; %d is filled with the picture's number")
	fs.StringVar(&f.preview, "preview-path", "preview.png", "file that previews are written to")
	intVar(fs, &f.previewEvery, "preview-every", "", 0, 10000, "steps between previews; 0 is none")
	progressFlag(cmd, &f.progress)
	return cmd
}

func (a *app) runGenerate(cmd *cobra.Command, f *generateFlags) error {
	ctx := cmd.Context()
	p, err := f.sampling.params(cmd)
	if err != nil {
		return err
	}
	if p.Prompt, err = f.readPrompt(); err != nil {
		return err
	}
	if err := f.model.check(); err != nil {
		return err
	}
	if ext := strings.ToLower(filepath.Ext(f.output)); ext != ".png" {
		return usagef("output %s: only .png is written", f.output)
	}
	p.Batch, p.Seed = f.batch, f.seed
	if p.Seed < 0 {
		p.Seed = rand.Int64N(1 << 32)
		a.say("seed %d", p.Seed)
	}
	m, _, err := f.model.load(ctx, a, false, f.progress)
	if err != nil {
		return err
	}
	defer m.Close()
	a.fit(&p, m.Traits())
	return a.generate(ctx, m, p, f)
}

func (f *generateFlags) readPrompt() (string, error) {
	if f.promptFile == "" {
		return f.prompt, nil
	}
	if f.prompt != "" {
		return "", usagef("-p and --prompt-file exclude each other")
	}
	text, err := os.ReadFile(f.promptFile)
	return strings.TrimRight(string(text), "\r\n"), err
}

func (a *app) generate(ctx context.Context, m *engine.Model, p engine.Params, f *generateFlags) error {
	total := int64(p.Steps * p.Batch)
	start := time.Now()
	h := engine.Hooks{
		Step: func(s engine.Step) {
			done := int64((s.Image-1)*s.Steps + s.Step)
			a.say("picture %d of %d, step %d of %d (%d of %d in all): %s", s.Image, s.Images, s.Step, s.Steps, done, total, speed(s.Took))
		},
		Done: func(i int, img *image.NRGBA) error {
			path := numbered(f.output, i, p.Batch)
			one := p
			one.Seed += int64(i)
			if err := writePNG(path, img, parameters(one, m)); err != nil {
				return err
			}
			a.say("wrote %s after %.1f s", path, time.Since(start).Seconds())
			return nil
		},
	}
	if f.previewEvery > 0 {
		h.PreviewEvery = f.previewEvery
		h.Preview = func(s engine.Step, img *image.NRGBA) {
			if err := writePNG(f.preview, img, parameters(p, m)); err != nil {
				a.warn(fmt.Sprintf("preview: %v", err))
			}
		}
	}
	_, err := m.Generate(ctx, p, h)
	return err
}

func speed(took time.Duration) string {
	s := took.Seconds()
	if s > 1 {
		return fmt.Sprintf("%.2f s/it", s)
	}
	return fmt.Sprintf("%.2f it/s", 1/max(s, 1e-9))
}

// parameters describes a picture the way stable-diffusion-webui does, which
// viewers understand.
func parameters(p engine.Params, m *engine.Model) string {
	method, scheduler := m.Traits().Method, sample.DefaultScheduler(m.Prediction(), m.Traits().Method)
	if p.Method != nil {
		method = *p.Method
		scheduler = sample.DefaultScheduler(m.Prediction(), method)
	}
	if p.Scheduler != nil {
		scheduler = *p.Scheduler
	}
	if p.Guidance == engine.ModelGuidance {
		p.Guidance = m.Traits().Guidance
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", p.Prompt)
	if p.Negative != "" {
		fmt.Fprintf(&b, "Negative prompt: %s\n", p.Negative)
	}
	fmt.Fprintf(&b, "Steps: %d, CFG scale: %g, Seed: %d, Size: %dx%d, Model: %s, RNG: %s, Sampler: %s, Schedule type: %s, Version: sdtool %s",
		p.Steps, p.Guidance, p.Seed, p.Width, p.Height, m.Traits().Name, p.RNG, method, scheduler, versionString())
	return b.String()
}
