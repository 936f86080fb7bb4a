package main

import (
	"strings"

	"github.com/sdtool/sdtool/convert"
	"github.com/sdtool/sdtool/rename"
	"github.com/sdtool/sdtool/tensor"
)

// familyJSON says what a checkpoint is.
type familyJSON struct {
	Name       string   `json:"name,omitempty"`
	Title      string   `json:"title,omitempty"`
	Evidence   []string `json:"evidence,omitempty"`
	Layout     string   `json:"layout,omitempty"`
	Prediction string   `json:"prediction,omitempty"`
	Why        string   `json:"prediction_from,omitempty"`
	Contents   []string `json:"contents"`
}

// familyOf says what the names and shapes of a checkpoint tell; nil if nothing.
func familyOf(cp *convert.Checkpoint) *familyJSON {
	infos := make([]tensor.Info, len(cp.Tensors))
	for i, t := range cp.Tensors {
		infos[i] = t.Info
	}
	out := &familyJSON{Contents: []string{}}
	for _, c := range rename.Contents(infos) {
		out.Contents = append(out.Contents, string(c))
	}
	if found := rename.Detect(infos); found.Family.Known() {
		out.Name, out.Title = found.Family.String(), found.Family.Title()
		out.Evidence, out.Prediction, out.Why = found.Evidence, found.Prediction.String(), found.Why
		out.Layout = "original"
		if found.Diffusers {
			out.Layout = "diffusers"
		}
	}
	if out.Name == "" && len(out.Contents) == 0 {
		return nil
	}
	return out
}

func (f *familyJSON) rows(t *table) {
	if len(f.Contents) > 0 {
		t.row("holds", strings.Join(f.Contents, ", "))
	}
	if f.Name == "" {
		return
	}
	t.row("family", f.Title+" ("+f.Name+"), names in the "+f.Layout+" layout")
	t.row("  told from", strings.Join(f.Evidence, ", "))
	prediction := f.Prediction
	if f.Why != "" {
		prediction += ", from " + f.Why
	}
	t.row("  predicts", prediction)
}
