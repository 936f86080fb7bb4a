package chart

import (
	"bytes"
	_ "embed" // for the page
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
)

//go:embed report.html
var page string

var report = template.Must(template.New("report").Funcs(template.FuncMap{
	"percent": func(v float64) string { return fmt.Sprintf("%.1f", 100*v) },
	"short":   func(v float64) string { return fmt.Sprintf("%.4g", v) },
}).Parse(page))

// WriteHTML writes a page that stands alone: the heat map and a table of every
// entry's figures that can be sorted.
func WriteHTML(w io.Writer, title string, lines []Line) error {
	var picture bytes.Buffer
	if err := WritePNG(&picture, title, lines); err != nil {
		return err
	}
	err := report.Execute(w, struct {
		Title   string
		Picture template.URL
		Lines   []Line
	}{title, template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(picture.Bytes())), lines})
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
