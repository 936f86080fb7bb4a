package convert

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sdtool/sdtool/gguf"
	"github.com/sdtool/sdtool/safetensors"
)

// ErrNoModel is wrapped when a folder holds nothing to read.
var ErrNoModel = errors.New("no model found")

// subfolder is a component of a diffusers pipeline.
type subfolder struct {
	name   string
	prefix string
}

// subfolders lists the components in the order in which they are read. The
// prefixes are the spellings that rename.Family.Rename knows.
var subfolders = []subfolder{
	{"unet", "unet."},
	{"transformer", "transformer."},
	{"transformer_2", "model.high_noise_diffusion_model."},
	{"vae", "vae."},
	{"text_encoder", "te."},
	{"text_encoder_2", "te2."},
	{"text_encoder_3", "te3."},
}

// openFolder opens what a folder holds: the components of a diffusers pipeline,
// a sharded or split set, or one file.
func openFolder(path string, o OpenOptions) (*Checkpoint, error) {
	if isPipeline(path) {
		return openPipeline(path, o)
	}
	file, err := pickFile(path, o.Variant)
	if err != nil {
		return nil, err
	}
	return Open(file, o)
}

// isPipeline reports whether a folder is a diffusers pipeline.
func isPipeline(path string) bool {
	if exists(filepath.Join(path, "model_index.json")) {
		return true
	}
	for _, s := range subfolders[:2] {
		if exists(filepath.Join(path, s.name, "config.json")) || holdsModel(filepath.Join(path, s.name)) {
			return true
		}
	}
	return false
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func holdsModel(folder string) bool {
	names, err := modelFiles(folder)
	return err == nil && len(names) > 0
}

func openPipeline(path string, o OpenOptions) (*Checkpoint, error) {
	c := &Checkpoint{Path: path, Format: FormatDiffusers}
	wanted, err := pipelineParts(path)
	if err != nil {
		return nil, err
	}
	for _, s := range subfolders {
		folder := filepath.Join(path, s.name)
		if !exists(folder) {
			if slices.Contains(wanted, s.name) {
				c.Notes = append(c.Notes, fmt.Sprintf("%s: model_index.json lists %s, but there is no such folder", path, s.name))
			}
			continue
		}
		file, err := pickFile(folder, o.Variant)
		if errors.Is(err, ErrNoModel) {
			c.Notes = append(c.Notes, fmt.Sprintf("%s: nothing to read in %s", path, s.name))
			continue
		}
		var part *Checkpoint
		if err == nil {
			part, err = Open(file, o)
		}
		if err != nil {
			if part != nil {
				err = errors.Join(err, part.Close())
			}
			return nil, errors.Join(err, c.Close())
		}
		c.join(part, s.prefix)
	}
	if len(c.parts) == 0 {
		return nil, fmt.Errorf("open %s: %w: none of its folders holds a model file", path, ErrNoModel)
	}
	return c, nil
}

// indexLimit bounds model_index.json, which is a few KiB.
const indexLimit = 1 << 20

// pipelineParts returns the components that model_index.json lists; none if it
// is not there.
func pipelineParts(path string) ([]string, error) {
	file := filepath.Join(path, "model_index.json")
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > indexLimit {
		return nil, fmt.Errorf("read %s: not a file of at most %d bytes", file, indexLimit)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(text, &keys); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	var parts []string
	for key, value := range keys {
		var pair []*string
		if json.Unmarshal(value, &pair) == nil && len(pair) == 2 && pair[0] != nil {
			parts = append(parts, key)
		}
	}
	slices.Sort(parts)
	return parts, nil
}

// modelEndings are the names that model files end in, best first.
var modelEndings = []string{".safetensors", ".gguf", ".bin", ".ckpt", ".pth", ".pt"}

// notModels are torch files that training leaves beside the weights.
var notModels = []string{"optimizer.", "scheduler.", "training_args.", "rng_state", "scaler."}

// modelFiles lists the model files in a folder, by name.
func modelFiles(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		name := e.Name()
		other := slices.ContainsFunc(notModels, func(p string) bool { return strings.HasPrefix(name, p) })
		if e.IsDir() || other || strings.HasPrefix(name, ".") {
			continue
		}
		if slices.ContainsFunc(modelEndings, func(end string) bool { return strings.HasSuffix(strings.ToLower(name), end) }) {
			names = append(names, name)
		}
	}
	return names, nil
}

// pickFile returns the file to open in a folder that holds one model: its
// index, the first part of its split set, or its only file. With several
// variants of one file, it takes the wanted one.
func pickFile(folder, variant string) (string, error) {
	index, err := findIndex(folder, variant)
	if err != nil || index != "" {
		return index, err
	}
	names, err := modelFiles(folder)
	if err != nil {
		return "", err
	}
	for _, end := range modelEndings {
		var found []string
		for _, name := range names {
			if !strings.HasSuffix(strings.ToLower(name), end) {
				continue
			}
			if _, i, _, ok := gguf.ParseSplitName(name); ok && i > 0 {
				continue
			}
			found = append(found, name)
		}
		if len(found) == 0 {
			continue
		}
		found = pickVariant(found, variant)
		if len(found) != 1 {
			return "", fmt.Errorf("open %s: it holds several models, name one of them: %s", folder, List(found))
		}
		return filepath.Join(folder, found[0]), nil
	}
	return "", fmt.Errorf("open %s: %w", folder, ErrNoModel)
}

// findIndex returns the index of a folder, or "".
func findIndex(folder, variant string) (string, error) {
	index, err := safetensors.FindIndex(folder, variant)
	if err == nil {
		return index, nil
	}
	if !errors.Is(err, safetensors.ErrNoIndex) {
		return "", err
	}
	if variant != "" {
		if index, err = safetensors.FindIndex(folder, ""); err == nil && !hasVariant(folder, variant) {
			return index, nil
		}
	}
	for _, name := range []string{"pytorch_model.bin.index.json", "diffusion_pytorch_model.bin.index.json"} {
		if path := filepath.Join(folder, name); exists(path) {
			if names, err := modelFiles(folder); err == nil && !slices.ContainsFunc(names, isSafetensors) {
				return path, nil
			}
		}
	}
	return "", nil
}

func isSafetensors(name string) bool { return strings.HasSuffix(name, ".safetensors") }

func hasVariant(folder, variant string) bool {
	names, err := modelFiles(folder)
	return err == nil && slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, "."+variant+".") })
}

// variants are the words that stand between a file's stem and its ending.
var variants = []string{"fp16", "fp32", "bf16", "fp8", "non_ema", "ema", "ema_only", "int8", "q8_0", "q4_0"}

// pickVariant narrows names to those of the wanted variant, or to those of none.
func pickVariant(names []string, variant string) []string {
	if len(names) == 1 {
		return names
	}
	var plain, exact []string
	for _, name := range names {
		words := strings.Split(name, ".")
		word := ""
		if len(words) > 2 {
			word = words[len(words)-2]
		}
		switch {
		case variant != "" && word == variant:
			exact = append(exact, name)
		case !slices.Contains(variants, word):
			plain = append(plain, name)
		}
	}
	if len(exact) > 0 {
		return exact
	}
	if len(plain) > 0 {
		return plain
	}
	return names
}
