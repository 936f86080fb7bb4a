package convert

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sdtool/sdtool/safetensors"
	"github.com/sdtool/sdtool/tensor"
)

// openIndex opens the set of files that an index names.
func openIndex(path string, o OpenOptions) (*Checkpoint, error) {
	shards, err := indexShards(path)
	if err != nil {
		return nil, err
	}
	if len(shards) > 0 && slices.ContainsFunc(shards, func(s string) bool { return !isSafetensors(s) }) {
		return openTorchIndex(path, shards, o)
	}
	var opts []safetensors.IndexOption
	if o.AllowOutside {
		opts = append(opts, safetensors.AllowOutside())
	}
	f, err := safetensors.OpenIndex(path, opts...)
	if f == nil {
		return nil, err
	}
	return fromSafetensors(path, f), err
}

// torchIndexLimit bounds an index of torch files: one line a tensor.
const torchIndexLimit = 64 << 20

// indexShards returns the distinct files an index names; none if the file is
// not of that form, which the safetensors reader then explains.
func indexShards(path string) ([]string, error) {
	f, size, err := tensor.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	if size > torchIndexLimit {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var index struct {
		Map map[string]string `json:"weight_map"`
	}
	if json.Unmarshal(text, &index) != nil {
		return nil, nil
	}
	var shards []string
	for _, shard := range index.Map {
		if !slices.Contains(shards, shard) {
			shards = append(shards, shard)
		}
	}
	slices.Sort(shards)
	return shards, nil
}

// openTorchIndex opens a set of torch files (pytorch_model.bin.index.json).
func openTorchIndex(path string, shards []string, o OpenOptions) (*Checkpoint, error) {
	c := &Checkpoint{Path: path, Format: FormatTorch, Index: path}
	var missing []string
	folder := filepath.Dir(path)
	for _, shard := range shards {
		full := filepath.Join(folder, filepath.FromSlash(shard))
		if !o.AllowOutside && (!filepath.IsLocal(filepath.FromSlash(shard)) || strings.HasSuffix(shard, ".json")) {
			return nil, fmt.Errorf("open %s: it names %q, which is outside its folder (--allow-outside lets it)", path, shard)
		}
		if !exists(full) {
			missing = append(missing, full)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("open %s: %d of %d files it names are missing: %s", path, len(missing), len(shards), List(missing))
	}
	for _, shard := range shards {
		part, err := Open(filepath.Join(folder, filepath.FromSlash(shard)), o)
		if err != nil {
			if part != nil {
				err = errors.Join(err, part.Close())
			}
			return nil, errors.Join(err, c.Close())
		}
		c.join(part, "")
	}
	if err := c.uniqueNames(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}
