package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sdtool/sdtool/convert"
)

const verifyLong = `Compare a finished file with what a conversion makes of its input: every tensor's
presence, shape and type, and how far its numbers are from the input's. Give the options
of the conversion. The worst comes first.

The exit code is 1 if a tensor is missing, has another shape or type, holds NaN where the
input does not, or is farther off than --max-rel-error. --strict demands the very bytes of
a new conversion.`

func newVerifyCommand(a *app) *cobra.Command {
	f := &convertFlags{}
	var against string
	var limit float64
	var strict bool
	cmd := &cobra.Command{
		Use:   "verify OUT --against IN [options of convert]",
		Short: "Check a finished file against the input it was made from",
		Long:  verifyLong,
		Example: `  sdtool verify flux-q4_K.gguf --against flux.safetensors --type q4_K
  sdtool verify sd15-q8_0.gguf --against sd15.safetensors --type q8_0 --max-rel-error 0.02
  sdtool verify out.gguf --diffusion-model flux.safetensors --vae ae.safetensors --type q5_0 --strict`,
		Args: arguments("OUT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if against != "" {
				if f.inputs[convert.RoleModel] != "" {
					return usagef("--against and --model are the same; give one")
				}
				f.inputs[convert.RoleModel] = against
			}
			if f.split != "" {
				return usagef("verify looks at one file; --split-components does not go with it")
			}
			return a.verify(cmd, f, args[0], strict, limit)
		},
	}
	f.register(cmd)
	fs := cmd.Flags()
	for _, name := range []string{"output", "split-components", "overwrite", "resume", "dry-run", "explain", "max-memory", "strict"} {
		fs.Lookup(name).Hidden = true
	}
	fs.Lookup("strict").Hidden = false
	fs.Lookup("strict").Usage = "demand the very bytes of a new conversion"
	fs.StringVar(&against, "against", "", "the input: file, index or folder (the same as --model)")
	fs.Float64Var(&limit, "max-rel-error", math.Inf(1), "largest relative error allowed, as 0.05")
	cmd.PreRun = func(*cobra.Command, []string) { strict, f.strict = f.strict, false }
	return cmd
}

// verdictJSON is one tensor of 'verify --json'.
type verdictJSON struct {
	Name     string  `json:"name"`
	From     string  `json:"from"`
	Want     string  `json:"want"`
	Got      string  `json:"got,omitempty"`
	Problem  string  `json:"problem,omitempty"`
	RMSE     float64 `json:"rmse"`
	Max      float64 `json:"max_error"`
	RelError float64 `json:"relative_error"`
	Cosine   float64 `json:"cosine"`
	Weighted float64 `json:"weighted_relative_error,omitempty"`
	Shared   int64   `json:"not_finite_in_both,omitempty"`
	Same     *bool   `json:"same_bytes,omitempty"`
}

func (a *app) verify(cmd *cobra.Command, f *convertFlags, path string, strict bool, limit float64) (err error) {
	if len(f.components()) == 0 {
		return usagef("nothing to compare with: give --against FILE, or components")
	}
	if _, err := os.Stat(path); err != nil {
		return err
	}
	f.output = path // its ending tells the format
	o, err := f.options()
	if err != nil {
		return err
	}
	cp, err := openWhole(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cp.Close()) }()
	c, err := convert.Plan(cmd.Context(), *o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	p := a.newProgress(f.progress, "verify")
	verdicts, err := c.Verify(cmd.Context(), cp, convert.VerifyOptions{Strict: strict, Threads: f.threads, Progress: counted(p, c.Outputs[0].Size)})
	p.close(err)
	if err != nil {
		return err
	}
	bad := 0
	for i := range verdicts {
		if complaint(&verdicts[i], strict, limit) != "" {
			bad++
		}
	}
	if f.json {
		err = a.printJSON(verdictList(verdicts, strict, limit))
	} else {
		err = a.printVerdicts(verdicts, strict, limit)
	}
	switch {
	case err != nil || f.json && bad == 0:
		return err
	case bad > 0:
		return fmt.Errorf("%s: %d of %s not as the conversion makes them", path, bad, plural(len(verdicts), "tensor"))
	}
	return a.tell("%s: %s as the conversion makes them, the worst with a relative error of %.4g\n", clean(path), plural(len(verdicts), "tensor"), worst(verdicts))
}

// worst returns the largest relative error.
func worst(verdicts []convert.Verdict) float64 {
	var e float64
	for i := range verdicts {
		e = max(e, verdicts[i].RelError)
	}
	return e
}

// complaint says what is wrong with a tensor; "" if nothing is.
func complaint(v *convert.Verdict, strict bool, limit float64) string {
	switch {
	case v.Problem != "" && v.Detail != "":
		return v.Problem + ": " + v.Detail
	case v.Problem != "":
		return v.Problem
	case v.NonFinite:
		return "not a finite number where the input has one"
	case strict && !v.Same:
		return "its bytes differ"
	case v.RelError > limit:
		return "beyond the limit"
	}
	return ""
}

func verdictList(verdicts []convert.Verdict, strict bool, limit float64) []verdictJSON {
	list := make([]verdictJSON, 0, len(verdicts))
	for i := range verdicts {
		v := &verdicts[i]
		j := verdictJSON{Name: v.Name, From: v.From.String(), Want: v.Want.String(), Got: v.Got.String(), Problem: complaint(v, strict, limit),
			RMSE: v.RMSE, Max: v.Max, RelError: v.RelError, Cosine: v.Cosine, Weighted: v.Weighted, Shared: v.Shared}
		if strict {
			j.Same = &v.Same
		}
		list = append(list, j)
	}
	return list
}

func (a *app) printVerdicts(verdicts []convert.Verdict, strict bool, limit float64) error {
	t := newTable(a.stdout)
	weighted := slices.ContainsFunc(verdicts, func(v convert.Verdict) bool { return v.Weighted > 0 })
	row := func(name, got, relative, weight, rmse, largest, cosine, problem any) {
		cells := []any{name, got, relative, weight, rmse, largest, cosine, problem}
		if !weighted {
			cells = slices.Delete(cells, 3, 4)
		}
		t.row(cells...)
	}
	row("TENSOR", "TYPE", "REL ERROR", "WEIGHTED", "RMSE", "MAX", "COSINE", "PROBLEM")
	for i := range verdicts {
		v := &verdicts[i]
		problem := complaint(v, strict, limit)
		if problem == "" && v.Shared > 0 {
			problem = fmt.Sprintf("none, but %s not finite, as in the input", plural(v.Shared, "number"))
		}
		row(v.Name, v.Got, fmt.Sprintf("%.4g", v.RelError), fmt.Sprintf("%.4g", v.Weighted), fmt.Sprintf("%.3g", v.RMSE),
			fmt.Sprintf("%.3g", v.Max), fmt.Sprintf("%.6f", v.Cosine), problem)
	}
	return t.flush()
}
