package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"image"
	"image/png"
	"io"
	"path/filepath"
	"strings"

	"github.com/sdtool/sdtool/writer"
)

// writePNG writes a picture with a text chunk "parameters", where other tools
// look for how it was made. Nothing is left behind when it fails.
func writePNG(path string, img image.Image, parameters string) error {
	return writer.WriteFile(path, writer.FileOptions{Overwrite: true}, func(w io.Writer) error {
		var buf bytes.Buffer
		if err := png.Encode(&buf, img); err != nil {
			return err
		}
		const headerEnd = 8 + 12 + 13 // signature and the IHDR chunk, after which text may come
		for _, part := range [][]byte{buf.Bytes()[:headerEnd], textChunk("parameters", parameters), buf.Bytes()[headerEnd:]} {
			if _, err := w.Write(part); err != nil {
				return err
			}
		}
		return nil
	})
}

// textChunk is an iTXt chunk, which holds UTF-8 (PNG specification, 11.3.3.4).
func textChunk(keyword, text string) []byte {
	data := []byte("iTXt" + keyword + "\x00\x00\x00\x00\x00" + strings.ToValidUTF8(text, "\ufffd"))
	chunk := binary.BigEndian.AppendUint32(nil, uint32(len(data)-4))
	chunk = append(chunk, data...)
	return binary.BigEndian.AppendUint32(chunk, crc32.ChecksumIEEE(data))
}

// numbered returns the path of picture i (from 0) of n: a %d format in it is
// filled in, otherwise "_2", "_3" … goes before the ending.
func numbered(path string, i, n int) string {
	if strings.Contains(path, "%") {
		if s := fmt.Sprintf(path, i+1); !strings.Contains(s, "%!") {
			return s
		}
	}
	if i == 0 || n == 1 {
		return path
	}
	ext := filepath.Ext(path)
	return fmt.Sprintf("%s_%d%s", strings.TrimSuffix(path, ext), i+1, ext)
}
