package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sdtool/sdtool/convert"
	"github.com/sdtool/sdtool/engine"
	"github.com/sdtool/sdtool/engine/sample"
	"github.com/sdtool/sdtool/engine/text"
	"github.com/sdtool/sdtool/native"
	"github.com/sdtool/sdtool/rename"
	"github.com/sdtool/sdtool/tensor"
	"github.com/sdtool/sdtool/writer"
)

// newEngineCommand is the parent of commands about what models run on.
func newEngineCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "engine",
		Short: "Tell what models can be run on",
		Long: `Models are run by the ggml library, which is loaded when it is needed: from --ggml-lib DIR, $SDTOOL_GGML, a folder
ggml beside the executable, native/ggml of a checkout (native/ggml/fetch.sh fills it), or where the system keeps it.`,
		Example: "  sdtool engine info",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newEngineInfoCommand(a))
	return cmd
}

// libraryFlag adds --ggml-lib to a command.
func libraryFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "ggml-lib", "", "folder of the ggml library")
}

// openLibrary loads ggml from the folder given or the usual ones.
func (a *app) openLibrary(dir string) (*native.Library, error) {
	dirs := []string{dir}
	if dir == "" {
		dirs = a.libraryDirs()
	}
	paths, err := native.Find(dirs...)
	if err != nil {
		return nil, err
	}
	return native.Open(paths)
}

// libraryDirs lists where a library may be, best first.
func (a *app) libraryDirs() []string {
	dirs := []string{a.getenv("SDTOOL_GGML")}
	beside := []string{"."}
	if exe, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(exe); err == nil {
			exe = real
		}
		dirs = append(dirs, filepath.Join(filepath.Dir(exe), "ggml"))
		beside = append(beside, filepath.Dir(exe), filepath.Join(filepath.Dir(exe), "..")) // bin/ of a checkout
	}
	for _, dir := range beside {
		dirs = append(dirs, filepath.Join(dir, "native", "ggml"))
	}
	return append(dirs, native.SystemDirs()...)
}

// modelFlags say which model to run, and on what.
type modelFlags struct {
	inputs     [64]string // by convert.Role
	variant    string
	outside    bool
	family     string
	library    string
	device     string
	threads    int
	flash      bool
	flashModel bool
	fast       bool
	prediction string
	flowShift  float32
	noMap      bool
	tokenizer  string

	predicts *sample.Prediction // by check
	kind     rename.Family
}

func (f *modelFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	for _, role := range convert.Roles() {
		short := map[convert.Role]string{convert.RoleModel: "m"}[role]
		pathVar(fs, &f.inputs[role], role.String(), short, role.Title()+": `FILE`, index or folder")
	}
	fs.StringVar(&f.variant, "variant", "", "kind of file to take from folders, as fp16")
	fs.BoolVar(&f.outside, "allow-outside", false, "let an index name files outside its folder")
	fs.StringVar(&f.family, "family", "", "family of the model, instead of detecting it")
	fs.StringVar(&f.prediction, "prediction", "", "what the network predicts: eps, v, edm_v (default: found out)")
	fs.Float32Var(&f.flowShift, "flow-shift", 0, "shift of the noise levels of flow models (default: the model's)")
	pathVar(fs, &f.tokenizer, "t5-tokenizer", "", "tokenizer of the T5 encoder: `FILE` tokenizer.json, spiece.model or GGUF, or a folder (default: found with the model)")
	libraryFlag(cmd, &f.library)
	fs.BoolVar(&f.noMap, "no-mmap", false, "read weights into memory instead of using them where they lie in their files")
	fs.StringVar(&f.device, "device", "", "device to compute on, as sdtool engine info lists them (default: the CPU)")
	threadsFlag(fs, &f.threads, "threads that compute (default: physical cores)")
	fs.BoolVar(&f.flash, "fa", false, "fused attention: less memory, slightly other pictures")
	fs.BoolVar(&f.flashModel, "diffusion-fa", false, "the same as --fa")
	fs.BoolVar(&f.fast, "fast", false, "use ggml's own matrix kernels for SD 1.x, 2.x and XL, as for all others: several times faster, but numbers differ from stable-diffusion.cpp's in the fourth digit")
}

// check refuses what can be refused before anything is opened, and reads the flags
// whose values have a form.
func (f *modelFlags) check() error {
	if !slices.ContainsFunc(f.inputs[:], func(path string) bool { return path != "" }) {
		return usagef("no model: give -m FILE, or its components")
	}
	if f.prediction != "" {
		p, err := sample.ParsePrediction(f.prediction)
		if err != nil {
			return usagef("--prediction: %w", err)
		}
		f.predicts = &p
	}
	if f.family != "" {
		var err error
		if f.kind, err = rename.ParseFamily(f.family); err != nil {
			return usagef("--family: %w", err)
		}
	}
	return nil
}

// load opens and loads the model after check. The files are closed when it returns.
func (f *modelFlags) load(ctx context.Context, a *app, noPictures bool, progress string) (*engine.Model, *native.Library, error) {
	o := engine.Options{Device: f.device, Threads: f.threads, FlashAttention: f.flash || f.flashModel, Fast: f.fast, NoPictures: noPictures, NoMap: f.noMap, FlowShift: f.flowShift}
	if o.Threads < 1 {
		o.Threads = writer.DefaultThreads()
	}
	o.Prediction = f.predicts
	var inputs []convert.Input
	for _, role := range convert.Roles() {
		if path := f.inputs[role]; path != "" {
			inputs = append(inputs, convert.Input{Role: role, Path: path})
		}
	}
	o.SeparateVAE = f.inputs[convert.RoleVAE] != ""
	lib, err := a.openLibrary(f.library)
	if err != nil {
		return nil, nil, err
	}
	native.OnAbort(func(message, doing string) {
		fmt.Fprintf(a.stderr, "sdtool: the ggml library ends the process while %s: %s\n", clean(doing), clean(message))
	})
	files, err := convert.OpenModel(inputs, convert.OpenOptions{Variant: f.variant, AllowOutside: f.outside}, f.kind)
	if err != nil {
		return nil, nil, err
	}
	defer files.Close()
	for _, w := range files.Warnings {
		a.warn(w)
	}
	if o.T5Tokenizer, err = f.findTokenizer(inputs, files); err != nil {
		return nil, nil, err
	}
	m, err := a.loadModel(ctx, lib, files, o, progress)
	if errors.Is(err, text.ErrNoTokenizer) {
		err = fmt.Errorf("%w (--t5-tokenizer FILE)", err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", inputs[0].Path, err)
	}
	return m, lib, nil
}

// findTokenizer reads the T5 tokenizer: the one given, or one in a GGUF component, in a
// folder that is a component, or beside the encoder. Without one nothing is wrong yet:
// not every model reads prompts with T5.
func (f *modelFlags) findTokenizer(inputs []convert.Input, files *convert.Model) (*text.Unigram, error) {
	if f.tokenizer != "" {
		return text.OpenUnigram(f.tokenizer)
	}
	if !slices.ContainsFunc(files.Tensors, func(t tensor.Tensor) bool { return strings.HasPrefix(t.Name, "text_encoders.t5xxl.") }) {
		return nil, nil
	}
	if md, ok := files.Metadata(text.GGUFKey); ok {
		return text.UnigramFromGGUF(md)
	}
	for _, in := range inputs {
		dir := in.Path
		if info, err := os.Stat(dir); err == nil && !info.IsDir() {
			if dir = filepath.Dir(dir); in.Role != convert.RoleT5 {
				continue
			}
		}
		u, err := text.OpenUnigram(dir)
		if err == nil || !errors.Is(err, text.ErrNoTokenizer) {
			return u, err
		}
	}
	return nil, nil
}

func (a *app) loadModel(ctx context.Context, lib *native.Library, files *convert.Model, o engine.Options, progress string) (*engine.Model, error) {
	bar := a.newProgress(progress, "load")
	o.Progress = func(done, total int64) { bar.set(done, total, "") }
	start := time.Now()
	m, err := engine.Load(ctx, lib, files.Tensors, o)
	bar.close(err)
	if err != nil {
		return nil, err
	}
	if err := files.Check(); err != nil {
		m.Close()
		return nil, err
	}
	a.say("%s, predicts %s: %s of weights loaded in %.1f s, on %s", m.Traits().Name, m.Prediction(),
		writer.FormatSize(m.WeightBytes()), time.Since(start).Seconds(), m.Device().Name)
	return m, nil
}

// say prints a line about what goes on, unless --quiet is given.
func (a *app) say(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintf(a.stderr, "%s\n", clean(fmt.Sprintf(format, args...)))
	}
}
