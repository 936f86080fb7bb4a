package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/sdtool/sdtool/"

// allowedImports reads the table of rooms in docs/DESIGN.md: for each top-level
// folder, the ones it may import; "*" stands for all.
func allowedImports(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "DESIGN.md"))
	require.NoError(t, err)
	allowed := make(map[string][]string)
	for _, line := range strings.Split(string(text), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`") {
			continue
		}
		room, _, _ := strings.Cut(strings.Trim(strings.TrimSpace(cells[1]), "`"), "/")
		var list []string
		for _, word := range strings.Split(cells[3], ",") {
			switch word = strings.TrimSpace(word); word {
			case "–":
			case "everything below":
				list = append(list, "*")
			case "formats":
				list = append(list, "gguf", "safetensors", "torch")
			default:
				list = append(list, word)
			}
		}
		allowed[room] = list
	}
	return allowed
}

// Packages import what docs/DESIGN.md lets them, and no more.
func TestImportTable(t *testing.T) {
	allowed := allowedImports(t)
	require.GreaterOrEqual(t, len(allowed), 13)
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "node_modules" || d.Name() == "_gen" || d.Name() == ".git") {
			return fs.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".go" {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		require.NoError(t, err)
		room, _, _ := strings.Cut(filepath.ToSlash(rel), "/")
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		require.NoError(t, err)
		list, known := allowed[room]
		require.True(t, known, "%s: folder %q is not in the table of docs/DESIGN.md", rel, room)
		for _, spec := range file.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			inner, ours := strings.CutPrefix(name, module)
			to, _, _ := strings.Cut(inner, "/")
			switch {
			case !ours || to == room:
			case strings.HasSuffix(path, "_test.go"), strings.HasSuffix(filepath.Dir(path), "test"), strings.HasPrefix(inner, "native/nativetest"):
				// Tests, and packages for tests, may look from anywhere.
			case (to == "testdata" || strings.HasSuffix(inner, "test")) && !slices.Contains(list, to):
				t.Errorf("%s imports %s, which is for tests", rel, name)
			case !slices.Contains(list, "*") && !slices.Contains(list, to):
				t.Errorf("%s imports %s, which docs/DESIGN.md does not allow %s/", rel, name, room)
			}
			for _, bad := range []string{"util", "utils", "common", "helpers", "misc", "pkg"} {
				if ours && slices.Contains(strings.Split(inner, "/"), bad) {
					t.Errorf("%s imports %s: no package is called %q here", rel, name, bad)
				}
			}
		}
		return nil
	})
	require.NoError(t, err)
}
