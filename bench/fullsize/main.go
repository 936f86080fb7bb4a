// Command fullsize writes whole models of zeros, to see what loading and running
// them takes.
//
//	fullsize flux|sd3 FOLDER
//
// FLUX.1 schnell's shapes (12 B parameters; dev has a guidance embedding more) or
// SD3.5 large's (8 B): the transformer in q4_0, T5 in q8_0, CLIP and the decoder in
// f16, each a GGUF file under the names runtimes read. The files are sparse: they
// take no disk, but as much memory as real ones.
package main

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sdtool/sdtool/gguf"
	"github.com/sdtool/sdtool/rename"
	"github.com/sdtool/sdtool/tensor"
)

// part is one file: a list of names, what opening a folder puts before them, and the
// type of its matrices.
type part struct {
	list, prefix, file string
	matrices           tensor.DType
}

var models = map[string]struct {
	family rename.Family
	parts  []part
}{
	"flux": {rename.Flux, []part{
		{"flux/transformer", "transformer.", "transformer.gguf", tensor.Q4_0},
		{"sd1/text_encoder", "te.", "clip_l.gguf", tensor.F16},
		{"flux/text_encoder_2", "te2.", "t5xxl.gguf", tensor.Q8_0},
		{"flux/vae", "vae.", "vae.gguf", tensor.F16},
	}},
	"sd3": {rename.SD3, []part{
		{"sd3/transformer", "transformer.", "transformer.gguf", tensor.Q4_0},
		{"sd1/text_encoder", "te.", "clip_l.gguf", tensor.F16},
		{"sdxl/text_encoder_2", "te2.", "clip_g.gguf", tensor.F16},
		{"flux/text_encoder_2", "te3.", "t5xxl.gguf", tensor.Q8_0},
		{"flux/vae", "vae.", "vae.gguf", tensor.F16},
	}},
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "fullsize:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 || models[args[0]].parts == nil {
		return errors.New("usage: fullsize flux|sd3 FOLDER")
	}
	lists, err := readLists(filepath.Join("rename", "testdata", "names.txt.gz"))
	if err != nil {
		return fmt.Errorf("%w (run it in the root of the checkout)", err)
	}
	m := models[args[0]]
	if err := os.MkdirAll(args[1], 0o755); err != nil {
		return err
	}
	for _, p := range m.parts {
		if err := p.write(m.family, lists[p.list], args[1]); err != nil {
			return fmt.Errorf("%s: %w", p.file, err)
		}
	}
	return nil
}

// readLists reads the complete name lists of rename's tests.
func readLists(path string) (map[string][]tensor.Info, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	lists := make(map[string][]tensor.Info)
	list := ""
	lines := bufio.NewScanner(z)
	for lines.Scan() {
		if title, ok := strings.CutPrefix(lines.Text(), "# "); ok {
			list = title
			continue
		}
		name, dims, _ := strings.Cut(lines.Text(), " ")
		info := tensor.Info{Name: name}
		for d := range strings.SplitSeq(dims, ",") {
			n, err := strconv.ParseInt(d, 10, 64)
			if d == "" || err != nil {
				continue
			}
			info.Shape = append(info.Shape, n)
		}
		lists[list] = append(lists[list], info)
	}
	return lists, lines.Err()
}

// zeros is a source of the right size.
type zeros int64

func (z zeros) Size() int64 { return int64(z) }

func (z zeros) ReadAt(p []byte, _ int64) (int, error) {
	clear(p)
	return len(p), nil
}

func (p part) write(family rename.Family, list []tensor.Info, folder string) error {
	var stored []tensor.Tensor
	for _, info := range list {
		if strings.HasSuffix(info.Name, "embed_tokens.weight") {
			continue // T5's table, a second time
		}
		info.Name = p.prefix + info.Name
		info.DType = tensor.F32
		if len(info.Shape) > 1 {
			info.DType = tensor.F16
		}
		if len(info.Shape) == 2 && info.Cols()%p.matrices.Block() == 0 {
			info.DType = p.matrices
		}
		n, err := info.Bytes()
		if err != nil {
			return err
		}
		stored = append(stored, tensor.Tensor{Info: info, Source: zeros(n)})
	}
	renamed, err := rename.Apply(family, stored)
	if err != nil {
		return err
	}
	infos := make([]tensor.Info, len(renamed.Tensors))
	for i, t := range renamed.Tensors {
		infos[i] = t.Info
	}
	layout, err := gguf.NewLayout(nil, infos)
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(folder, p.file))
	if err != nil {
		return err
	}
	_, err = f.Write(layout.Header)
	if err == nil {
		err = f.Truncate(layout.Size)
	}
	return errors.Join(err, f.Close())
}
