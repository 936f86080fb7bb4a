package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sdtool/sdtool/convert"
	"github.com/sdtool/sdtool/gguf"
	"github.com/sdtool/sdtool/rename"
	"github.com/sdtool/sdtool/tensor"
	"github.com/sdtool/sdtool/writer"
)

// convertFlags are the flags of convert as they are typed.
type convertFlags struct {
	inputs   [64]string // by convert.Role
	output   string
	split    string
	format   string
	typ      string
	rules    []string
	preset   []string
	fallback string
	compat   string
	strict   bool

	names       string
	convertName bool
	family      string
	include     []string
	exclude     []string
	keepUnused  bool
	keepScales  bool
	variant     string
	outside     bool

	imatrix      []string
	requireIM    bool
	allowNoIM    bool
	allowNoMatch bool
	noWeights    bool

	nativeAxes   bool
	nameLimit    int
	noProvenance bool
	dropMetadata bool

	overwrite bool
	resume    bool
	threads   int
	memory    sizeFlag
	progress  string
	dryRun    bool
	json      bool
	explain   []string
}

var convertLong = `Convert a checkpoint, or several components of one, to GGUF or safetensors.

Inputs are safetensors, GGUF and torch files, sharded sets (the index or its
folder), split GGUF sets and diffusers folders; their content tells which.
Without --type every tensor keeps its own type, except that F8 becomes F16,
F64 F32, and I64 I32 where the values fit.

Biases, embeddings and the layers around a model's body keep their type, and no
vector becomes a quantized type, unless a rule of --tensor-type-rules names them.
A row that is not a whole number of blocks keeps its type, or takes the first of
--fallback that fits. --compat sd-cli decides every tensor as stable-diffusion.cpp does.

Rules are PATTERN=TYPE,PATTERN=TYPE or @FILE with one a line; the first whose
pattern (RE2) is found in a tensor's final name decides. TYPE may be keep.

Memory: buffers stay within --max-memory; the process takes up to 64 MiB more.
The order of tensors is that of the inputs.

Types: ` + strings.Join(convert.Targets(), " ") + `.`

const convertExample = `  sdtool convert -m model.safetensors -o model.gguf --type q8_0
  sdtool convert --diffusion-model flux1-dev.safetensors -o flux.gguf --type q4_K --preset flux
  sdtool convert -m sd15.ckpt -o sd15.safetensors --type f16
  sdtool convert -m model.gguf -o model.gguf.new --type q5_0 --format gguf --fallback q8_0,f16
  sdtool convert -m m.safetensors -o m.gguf --type q4_0 --tensor-type-rules '^vae\.=f16,attn=q8_0'
  sdtool convert -m m.safetensors -o m.gguf --type iq2_xs --imatrix m.imatrix.gguf
  sdtool convert -m m.safetensors --type q4_K --explain blocks.0.attn.qkv.weight`

func newConvertCommand(a *app) *cobra.Command {
	f := &convertFlags{memory: writer.DefaultMaxMemory}
	cmd := &cobra.Command{
		Use:     "convert -m IN -o OUT [--type TYPE]",
		Short:   "Convert or quantize a checkpoint",
		Long:    convertLong,
		Example: convertExample,
		Args:    noArguments("give the input with -m and the output with -o"),
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.runConvert(cmd.Context(), f) },
	}
	f.register(cmd)
	return cmd
}

func (f *convertFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	f.registerInputs(cmd)
	pathVar(fs, &f.output, "output", "o", "`FILE` to write")
	pathVar(fs, &f.split, "split-components", "", "write one file for each component into `FOLDER`")
	choiceVar(fs, &f.format, "format", "`FORMAT`: gguf or safetensors (default: by the ending of the output)", "gguf", "safetensors")
	fs.Var(&typeFlag{&f.typ}, "type", "`TYPE` for the weights: f32, f16, bf16, q8_0, q4_K, iq4_xs … (all are listed above)")
	fs.StringArrayVar(&f.rules, "tensor-type-rules", nil, "`RULES`: PATTERN=TYPE,… or @FILE; may be repeated")
	fs.StringArrayVar(&f.preset, "preset", nil, "rules for a kind of model by `NAME`, after your own (sdtool presets)")
	fs.StringVar(&f.fallback, "fallback", "", "`TYPES` to try where rows do not fit the wanted one, as q8_0,q5_0,f16")
	choiceVar(fs, &f.compat, "compat", "`TOOL` sd-cli: decide and compute as stable-diffusion.cpp does", "sd-cli")
	fs.BoolVar(&f.strict, "strict", false, "fail if a tensor's rows do not fit the wanted type")
	f.names = "keep"
	choiceVar(fs, &f.names, "names", "`NAMES` of tensors: keep, ldm (the original model's) or comfy (the same, a lone diffusion model without prefix)", "keep", "ldm", "comfy")
	fs.BoolVar(&f.convertName, "convert-name", false, "the same as --names ldm")
	fs.StringVar(&f.family, "family", "", "`FAMILY` of the model, instead of detecting it")
	fs.StringArrayVar(&f.include, "include", nil, "only tensors whose name `REGEX` finds; may be repeated")
	fs.StringArrayVar(&f.exclude, "exclude", nil, "without tensors whose name `REGEX` finds; may be repeated")
	fs.BoolVar(&f.keepUnused, "keep-unused", false, "keep tensors that no runtime reads")
	fs.BoolVar(&f.keepScales, "keep-scales", false, "pass fp8, int8 and fp4 weights on with their scales instead of multiplying")
	fs.StringVar(&f.variant, "variant", "", "`KIND` of file to take from folders, as fp16")
	fs.BoolVar(&f.outside, "allow-outside", false, "let an index name files outside its folder")
	fs.StringArrayVar(&f.imatrix, "imatrix", nil, "importance matrix `FILE`, .dat or GGUF; may be repeated (they are added)")
	fs.BoolVar(&f.requireIM, "require-imatrix", false, "fail if a quantized tensor is not in the importance matrix")
	fs.BoolVar(&f.allowNoIM, "allow-no-imatrix", false, "quantize without one even to types that need one")
	fs.BoolVar(&f.allowNoMatch, "allow-no-match", false, "go on if the importance matrix fits no tensor")
	fs.BoolVar(&f.noWeights, "no-weights", false, "where there is no importance matrix, quantize as llama-quantize does, not with weights of 1")
	fs.BoolVar(&f.nativeAxes, "native-axes", false, "GGUF: write more than four axes as they are instead of folding the outermost")
	f.nameLimit = gguf.NameLimitSD
	intVar(fs, &f.nameLimit, "name-limit", "", 1, 1<<16, "GGUF: longest tensor name in `BYTES` (63: any ggml, 127: ComfyUI-GGUF's, 159: stable-diffusion.cpp)")
	fs.BoolVar(&f.noProvenance, "no-provenance", false, "do not record version, sources and options in the output")
	fs.BoolVar(&f.dropMetadata, "drop-metadata", false, "do not carry over the metadata of the inputs")
	fs.BoolVar(&f.overwrite, "overwrite", false, "replace an existing output")
	resumeFlag(cmd, &f.resume)
	threadsFlag(fs, &f.threads, "`NUMBER` of workers (default: physical cores)")
	fs.Var(&f.memory, "max-memory", "memory for buffers, as 512MiB or 2G")
	progressFlag(cmd, &f.progress)
	fs.BoolVar(&f.dryRun, "dry-run", false, "print what would be written, and write nothing")
	fs.BoolVar(&f.json, "json", false, "print the plan or the summary as JSON")
	fs.StringArrayVar(&f.explain, "explain", nil, "print which rule decided the type of tensor `NAME` and why, and write nothing")
	// stable-diffusion.cpp's spelling.
	fs.StringArrayVar(&f.imatrix, "imat-in", nil, "the same as --imatrix")
	fs.Lookup("imat-in").Hidden = true
}

// registerInputs adds a flag for each component.
func (f *convertFlags) registerInputs(cmd *cobra.Command) {
	for _, role := range convert.Roles() {
		short := map[convert.Role]string{convert.RoleModel: "m", convert.RoleDiffusion: "d"}[role]
		pathVar(cmd.Flags(), &f.inputs[role], role.String(), short, role.Title()+": `FILE`, index or folder")
	}
}

// components returns the inputs given, in the order of their roles.
func (f *convertFlags) components() []convert.Input {
	var list []convert.Input
	for _, role := range convert.Roles() {
		if path := f.inputs[role]; path != "" {
			list = append(list, convert.Input{Role: role, Path: path})
		}
	}
	return list
}

// options checks the flags and turns them into what convert.Plan takes.
func (f *convertFlags) options() (*convert.Options, error) {
	o := &convert.Options{
		Inputs: f.components(), Strict: f.strict, KeepUnused: f.keepUnused, KeepScales: f.keepScales,
		Open:       convert.OpenOptions{Variant: f.variant, AllowOutside: f.outside},
		NativeAxes: f.nativeAxes, NameLimit: f.nameLimit, DropMetadata: f.dropMetadata,
		Imatrix: convert.Imatrix{
			Paths: f.imatrix, Require: f.requireIM, AllowMissing: f.allowNoIM,
			AllowNoMatch: f.allowNoMatch, NoWeights: f.noWeights,
		},
	}
	if f.requireIM && len(f.imatrix) == 0 {
		return nil, usagef("--require-imatrix without --imatrix")
	}
	if len(o.Inputs) == 0 {
		return nil, usagef("no input: give -m FILE, or a component as --diffusion-model FILE")
	}
	steps := []func(*convert.Options) error{f.setOutput, f.setPolicy, f.setNames, f.setFilters}
	for _, step := range steps {
		if err := step(o); err != nil {
			return nil, err
		}
	}
	if !f.noProvenance {
		o.Provenance = &convert.Provenance{Version: versionString(), Options: f.summary()}
	}
	return o, nil
}

func (f *convertFlags) setOutput(o *convert.Options) error {
	o.Output = f.output
	switch {
	case f.split != "" && f.output != "":
		return usagef("-o and --split-components exclude each other")
	case f.split != "":
		o.Output, o.Split = f.split, true
	case f.output == "" && !f.dryRun && len(f.explain) == 0:
		return usagef("no output: give -o FILE")
	}
	name := f.format
	if name == "" {
		name = strings.TrimPrefix(strings.ToLower(filepath.Ext(f.output)), ".")
		if name == "" && (f.split != "" || f.output == "") {
			name = "gguf"
		}
	}
	switch name {
	case "gguf":
		o.Format = convert.FormatGGUF
	case "safetensors":
		o.Format = convert.FormatSafetensors
	default:
		return usagef("output %s: end its name in .gguf or .safetensors, or give --format", f.output)
	}
	return nil
}

func (f *convertFlags) setPolicy(o *convert.Options) error {
	o.Policy.Compat = f.compat == "sd-cli"
	if f.typ != "" && !strings.EqualFold(f.typ, convert.KeepName) {
		d, err := convert.ParseTarget(f.typ)
		if err != nil {
			return usagef("--type: %w", err)
		}
		o.Policy.Type = d
	}
	if f.fallback != "" {
		for _, name := range strings.Split(f.fallback, ",") {
			d, err := convert.ParseTarget(strings.TrimSpace(name))
			if err != nil {
				return usagef("--fallback: %w", err)
			}
			o.Policy.Fallback = append(o.Policy.Fallback, d)
		}
	}
	rules, err := f.parseRules(o.Policy.Compat)
	if err != nil {
		return err
	}
	o.Policy.Rules = rules
	return f.checkTypes(o)
}

// parseRules parses the user's rules and, after them, those of presets.
func (f *convertFlags) parseRules(compat bool) ([]convert.Rule, error) {
	var all []convert.Rule
	for _, text := range f.rules {
		var rules []convert.Rule
		var err error
		if path, ok := strings.CutPrefix(text, "@"); ok {
			var content []byte
			if content, err = os.ReadFile(path); err != nil {
				return nil, err
			}
			rules, err = convert.ParseRuleLines(string(content), path)
		} else {
			rules, err = convert.ParseRules(text, "--tensor-type-rules", compat)
		}
		if err != nil {
			return nil, &usageError{err}
		}
		all = append(all, rules...)
	}
	for _, name := range f.preset {
		p, err := convert.FindPreset(name)
		if err != nil {
			return nil, usagef("--preset: %w", err)
		}
		rules, err := p.Rules()
		if err != nil {
			return nil, err
		}
		all = append(all, rules...)
	}
	return all, nil
}

// checkTypes refuses types that the output format does not have.
func (f *convertFlags) checkTypes(o *convert.Options) error {
	has := func(d tensor.DType) bool {
		if o.Format == convert.FormatGGUF {
			_, ok := d.GGML()
			return ok
		}
		_, ok := d.Safetensors()
		return ok
	}
	check := func(d tensor.DType, where string) error {
		if d != tensor.Invalid && !has(d) {
			return usagef("%s: a %s file cannot hold %s", where, o.Format, d)
		}
		return nil
	}
	if err := check(o.Policy.Type, "--type"); err != nil {
		return err
	}
	for _, d := range o.Policy.Fallback {
		if err := check(d, "--fallback"); err != nil {
			return err
		}
	}
	for _, r := range o.Policy.Rules {
		if err := check(r.Type, r.Origin); err != nil {
			return err
		}
	}
	return nil
}

func (f *convertFlags) setNames(o *convert.Options) error {
	switch f.names {
	case "ldm":
		o.Names = convert.NamesLDM
	case "comfy":
		o.Names = convert.NamesComfy
	}
	if f.convertName && o.Names == convert.NamesKeep {
		o.Names = convert.NamesLDM
	}
	if f.family != "" {
		family, err := rename.ParseFamily(f.family)
		if err != nil {
			return usagef("--family: %w", err)
		}
		o.Family = family
	}
	return nil
}

func (f *convertFlags) setFilters(o *convert.Options) error {
	for _, list := range []struct {
		flag  string
		texts []string
		into  *[]*regexp.Regexp
	}{{"--include", f.include, &o.Include}, {"--exclude", f.exclude, &o.Exclude}} {
		for _, text := range list.texts {
			re, err := regexp.Compile(text)
			if err != nil {
				return usagef("%s: %w", list.flag, err)
			}
			*list.into = append(*list.into, re)
		}
	}
	return nil
}

// summary lists the options that decide the output's bytes, for provenance.
func (f *convertFlags) summary() string {
	var parts []string
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, "--"+name+" "+value)
		}
	}
	add("type", f.typ)
	for _, r := range f.rules {
		if path, isFile := strings.CutPrefix(r, "@"); isFile {
			r = "@" + filepath.Base(path)
		}
		add("tensor-type-rules", r)
	}
	for _, p := range f.preset {
		add("preset", p)
	}
	add("fallback", f.fallback)
	add("compat", f.compat)
	if f.convertName {
		parts = append(parts, "--convert-name")
	} else if f.names != "keep" {
		add("names", f.names)
	}
	for _, p := range f.imatrix {
		add("imatrix", filepath.Base(p))
	}
	if f.noWeights {
		parts = append(parts, "--no-weights")
	}
	return strings.Join(parts, " ")
}

func (a *app) runConvert(ctx context.Context, f *convertFlags) (err error) {
	o, err := f.options()
	if err != nil {
		return err
	}
	// An output that cannot be written is refused before anything is read.
	if f.output != "" && !f.dryRun && len(f.explain) == 0 {
		paths := make([]string, 0, len(o.Inputs))
		for _, in := range o.Inputs {
			paths = append(paths, in.Path)
		}
		if err := writer.Check(f.output, f.overwrite, paths); err != nil {
			return err
		}
	}
	limitMemory(int64(f.memory))
	c, err := convert.Plan(ctx, *o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for _, w := range c.Warnings {
		a.warn(w)
	}
	switch {
	case len(f.explain) > 0:
		return a.explain(c, f.explain, f.json)
	case f.dryRun:
		return a.printPlan(c, o, f.json, a.verbose)
	}
	if f.split != "" {
		if err := os.MkdirAll(f.split, 0o777); err != nil {
			return err
		}
	}
	return a.writeConversion(ctx, c, &writeFlags{
		poolFlags: poolFlags{overwrite: f.overwrite, threads: f.threads, memory: f.memory, progress: f.progress},
		json:      f.json, resume: f.resume,
	})
}

// writeConversion carries a plan out, with progress and a summary.
func (a *app) writeConversion(ctx context.Context, c *convert.Conversion, f *writeFlags) error {
	start := time.Now()
	p := a.newProgress(f.progress, "convert")
	o := f.options(p)
	o.Resume = f.resume
	err := c.Write(ctx, o)
	p.close(err)
	if err != nil {
		return err
	}
	return a.printSummary(c, time.Since(start), f.json)
}

// headroom is what the process may take besides buffers, for the collector's
// purposes: less than what is promised, as the program itself counts too.
const headroom = 48 << 20

// limitMemory makes the garbage collector work harder as the promised peak
// comes near, which headers of many tensors could pass.
func limitMemory(budget int64) { debug.SetMemoryLimit(budget + headroom) }

// familyText names a family for people.
func familyText(f rename.Family) string {
	if !f.Known() {
		return "unknown"
	}
	return fmt.Sprintf("%s (%s)", f.Title(), f)
}
