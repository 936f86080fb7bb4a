package convert

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"

	"github.com/sdtool/sdtool/tensor"
)

// headerBytes is how much of an input's beginning is part of its fingerprint.
const headerBytes = 1 << 20

// fingerprint stands for all that decides an output's bytes: the inputs by size,
// modification time and their first bytes, and what becomes of every tensor.
func (c *Conversion) fingerprint(out *Output) (string, error) {
	h := sha256.New()
	for _, path := range c.Inputs() {
		if err := fingerprintFile(h, path); err != nil {
			return "", err
		}
	}
	for i, t := range out.Tensors {
		exact := false
		if f, ok := out.plan.Entries[i].Fill.(*floatFill); ok {
			exact = f.exact
		}
		fmt.Fprintf(h, "%q %q %s %s %s %t\n", t.Name, t.Inputs, t.From, t.To, t.Weights, exact)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func fingerprintFile(h hash.Hash, path string) error {
	f, size, err := tensor.OpenRegular(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	fmt.Fprintf(h, "%q %d %d\n", path, size, info.ModTime().UnixNano())
	_, err = io.Copy(h, io.NewSectionReader(f, 0, min(size, headerBytes)))
	return err
}
