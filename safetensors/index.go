package safetensors

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sdtool/sdtool/tensor"
)

// ErrNoIndex is wrapped when a folder holds no index.
var ErrNoIndex = errors.New("no safetensors index")

// Limits on indexes.
const (
	maxShards  = 1 << 14 // files
	maxWeights = 1 << 18 // tensors in all of them
)

// IndexOption changes how OpenIndex reads an index.
type IndexOption func(*indexRules)

type indexRules struct {
	outside bool
	variant string
}

// AllowOutside lets an index name files outside its folder.
func AllowOutside() IndexOption { return func(r *indexRules) { r.outside = true } }

// WithVariant looks in a folder for the index of a variant, as
// "model.safetensors.index.fp16.json" is for "fp16".
func WithVariant(name string) IndexOption { return func(r *indexRules) { r.variant = name } }

// FindIndex returns the path of the one index in a folder: the file that ends in
// ".safetensors.index.json", or ".safetensors.index.VARIANT.json". It fails with
// ErrNoIndex if there is none and names them if there are several.
func FindIndex(folder, variant string) (string, error) {
	suffix := ".safetensors.index.json"
	if variant != "" {
		suffix = ".safetensors.index." + variant + ".json"
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return "", err
	}
	var found []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), suffix) && !e.IsDir() {
			found = append(found, e.Name())
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("%s: %w: no file ends in %s", folder, ErrNoIndex, suffix)
	case 1:
		return filepath.Join(folder, found[0]), nil
	}
	return "", fmt.Errorf("%s: found %d safetensors indexes, name one: %s", folder, len(found), strings.Join(found, ", "))
}

// Index is what an index says, with the names of its files resolved. The files may
// be of any format.
type Index struct {
	Path    string
	Shards  []string          // paths of the files, each once, sorted
	Tensors map[string]string // path of its file, by tensor name

	weights []weight
	paths   map[string]string // by the name in the index
}

// ReadIndex reads an index, or the one index in a folder, checks it and where its
// files are, and opens none of them. Its errors are *FormatError and
// *MissingShardsError.
func ReadIndex(path string, opts ...IndexOption) (*Index, error) {
	var rules indexRules
	for _, o := range opts {
		o(&rules)
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		if path, err = FindIndex(path, rules.variant); err != nil {
			return nil, err
		}
	}
	weights, err := readWeights(path)
	if err != nil {
		return nil, err
	}
	paths, err := shardPaths(path, weights, rules)
	if err != nil {
		return nil, err
	}
	x := &Index{Path: path, weights: weights, paths: paths, Shards: slices.Sorted(maps.Values(paths)), Tensors: make(map[string]string, len(weights))}
	x.Shards = slices.Compact(x.Shards)
	for _, w := range weights {
		x.Tensors[w.name] = paths[w.shard]
	}
	return x, nil
}

// OpenIndex opens the sharded set of an index, or of the one index in a folder.
// Besides the errors of Open and ReadIndex there is *MisplacedError. A shard may
// be a symbolic link to anywhere.
func OpenIndex(path string, opts ...IndexOption) (*File, error) {
	x, err := ReadIndex(path, opts...)
	if err != nil {
		return nil, err
	}
	return x.open()
}

// weight is one entry of a weight_map.
type weight struct{ name, shard string }

// readWeights returns the weight_map, sorted by tensor name.
func readWeights(path string) (weights []weight, err error) {
	file, size, err := tensor.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if size > maxHeader {
		return nil, &FormatError{Path: path, Kind: KindIndex, Offset: -1, Msg: fmt.Sprintf("found %d bytes, want at most %d", size, maxHeader)}
	}
	text := make([]byte, size)
	if err := tensor.ReadFull(file, path, text, 0); err != nil {
		return nil, err
	}
	return parseIndex(text, path)
}

func parseIndex(text []byte, path string) ([]weight, error) {
	p := &headerParser{parser: parser{b: text}, path: path}
	if what := tensor.Foreign(text[:min(64, len(text))]); p.peek() != '{' && what != "" {
		return nil, &FormatError{Path: path, Kind: KindForeign, Offset: -1, Msg: "not a safetensors index: this is " + what}
	}
	if !utf8.Valid(text) {
		return nil, p.fault(KindUTF8, "the index is not UTF-8")
	}
	// An entry has four quotes; a slice that grew would cost several times its size.
	weights := make([]weight, 0, min(bytes.Count(text, []byte{'"'})/4, maxWeights))
	seen := false
	shards := make(map[string]string) // one copy of each file name
	err := p.object(func(key string) error {
		if key != "weight_map" {
			return p.skip(0)
		}
		if seen {
			return p.fault(KindDuplicateKey, "the key %q is there twice", key)
		}
		seen = true
		return p.object(func(name string) error {
			p.tensor = name
			shard, err := p.str()
			if err != nil {
				return err
			}
			if len(weights) == maxWeights {
				return p.fault(KindLimit, "found more than %d tensors", maxWeights)
			}
			if _, ok := shards[shard]; !ok {
				if len(shards) == maxShards {
					return p.fault(KindLimit, "found more than %d shards", maxShards)
				}
				shards[shard] = shard
			}
			weights = append(weights, weight{name, shards[shard]})
			p.tensor = ""
			return nil
		})
	})
	if err == nil {
		err = p.end()
	}
	if err != nil {
		return nil, p.located("the index is not valid", err)
	}
	if len(weights) == 0 {
		return nil, &FormatError{Path: path, Kind: KindIndex, Offset: -1, Msg: "the index names no tensors: its weight_map is missing or empty"}
	}
	slices.SortStableFunc(weights, func(a, b weight) int { return strings.Compare(a.name, b.name) })
	for i := 1; i < len(weights); i++ {
		if weights[i].name == weights[i-1].name {
			return nil, &FormatError{Path: path, Kind: KindDuplicateKey, Tensor: weights[i].name, Offset: -1, Msg: "the weight_map has the name twice"}
		}
	}
	return weights, nil
}

// shardPaths returns the path of each shard, by the name the index gives it.
func shardPaths(path string, weights []weight, rules indexRules) (map[string]string, error) {
	folder := filepath.Dir(path)
	shards := make(map[string]string)
	for _, w := range weights {
		if _, ok := shards[w.shard]; ok {
			continue
		}
		fail := func(msg string) (map[string]string, error) {
			return nil, &FormatError{Path: path, Kind: KindIndex, Tensor: w.name, Offset: -1, Msg: fmt.Sprintf("shard %q: %s", tensor.Clip(w.shard), msg)}
		}
		local := filepath.FromSlash(w.shard)
		switch {
		case !shownSafely(w.shard):
			return fail("not a file name")
		case !filepath.IsLocal(local) && !rules.outside:
			return fail("it is outside the folder of the index")
		}
		if !filepath.IsAbs(local) {
			local = filepath.Join(folder, local)
		}
		if filepath.Clean(local) == filepath.Clean(path) {
			return fail("it is the index itself")
		}
		shards[w.shard] = local
	}
	return shards, missing(path, shards)
}

// shownSafely reports whether a name can be a file's and shown in a terminal: no
// control characters, none that change the direction of text, and not too long.
func shownSafely(name string) bool {
	return name != "" && len(name) <= 4096 && !strings.ContainsFunc(name, func(r rune) bool {
		return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
	})
}

func missing(path string, shards map[string]string) error {
	var names []string
	for _, shard := range shards {
		if _, err := os.Stat(shard); errors.Is(err, fs.ErrNotExist) {
			names = append(names, shard)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return &MissingShardsError{Path: path, Missing: slices.Compact(names)}
}

// open opens the shards and holds what they contain against the index.
func (x *Index) open() (*File, error) {
	set := &File{Index: x.Path, Paths: x.Shards}
	var cut error // of the first shard that is cut short
	in := make(map[string]string)
	for i, shard := range set.Paths {
		f, err := openOne(shard)
		if f == nil {
			return nil, errors.Join(err, set.Close())
		}
		if cut == nil {
			cut = err
		}
		if i == 0 {
			set.Metadata = f.Metadata
		}
		set.files.Adopt(&f.files)
		set.Size += f.Size
		set.Tensors = append(set.Tensors, f.Tensors...)
		for _, t := range f.Tensors {
			if first, ok := in[t.Name]; ok {
				return nil, errors.Join(&FormatError{Path: shard, Kind: KindDuplicateTensor, Tensor: t.Name, Offset: -1,
					Msg: "the tensor is in " + filepath.Base(first) + " too"}, set.Close())
			}
			in[t.Name] = shard
		}
	}
	if err := set.compare(x, in); err != nil {
		return nil, errors.Join(err, set.Close())
	}
	if cut != nil {
		set.Close()
	}
	return set, cut
}

// compare holds where tensors are against where the index says.
func (f *File) compare(x *Index, in map[string]string) error {
	wrong := &MisplacedError{Path: x.Path}
	for _, w := range x.weights {
		if found := in[w.name]; found != x.paths[w.shard] {
			wrong.Tensors = append(wrong.Tensors, Misplaced{Name: w.name, Shard: w.shard, Found: found})
		}
	}
	if len(wrong.Tensors) > 0 {
		return wrong
	}
	for _, t := range f.Tensors {
		if _, ok := x.Tensors[t.Name]; !ok {
			f.Unlisted = append(f.Unlisted, t.Name)
		}
	}
	return nil
}
