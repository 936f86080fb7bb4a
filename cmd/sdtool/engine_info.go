package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sdtool/sdtool/native"
	"github.com/sdtool/sdtool/writer"
)

func newEngineInfoCommand(a *app) *cobra.Command {
	var dir string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "info",
		Short: "Show the ggml library and its devices",
		Long:  "Show which ggml library is found, its version, and the devices it offers. Exits with 1 and advice if there is none.",
		Example: `  sdtool engine info
  sdtool engine info --ggml-lib /opt/ggml/lib --json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			lib, err := a.openLibrary(dir)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(engineInfo(lib))
			}
			return a.printEngine(lib)
		},
	}
	libraryFlag(cmd, &dir)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}

type deviceInfo struct {
	Name        string   `json:"name"`
	Kind        string   `json:"kind"`
	Backend     string   `json:"backend"`
	Description string   `json:"description"`
	Free        int64    `json:"free_bytes"`
	Total       int64    `json:"total_bytes"`
	Features    []string `json:"features,omitempty"`
}

type libraryInfo struct {
	Library string       `json:"library"`
	Folder  string       `json:"folder"`
	Version string       `json:"version"`
	Commit  string       `json:"commit"`
	Devices []deviceInfo `json:"devices"`
}

func engineInfo(lib *native.Library) libraryInfo {
	info := libraryInfo{Library: lib.Paths.Base, Folder: lib.Paths.Dir, Version: lib.Version, Commit: lib.Commit, Devices: []deviceInfo{}}
	for _, d := range lib.Devices() {
		info.Devices = append(info.Devices, deviceInfo{d.Name, d.Kind.String(), d.Backend, d.Description, d.Free, d.Total, d.Features})
	}
	return info
}

func (a *app) printEngine(lib *native.Library) error {
	info := engineInfo(lib)
	t := newTable(a.stdout)
	t.row("library", info.Library)
	t.row("version", fmt.Sprintf("ggml %s (%s)", info.Version, info.Commit))
	for _, d := range info.Devices {
		t.row("device", fmt.Sprintf("%s: %s (%s)", d.Name, d.Description, d.Kind))
		t.row("", fmt.Sprintf("memory %s, %s free", writer.FormatSize(d.Total), writer.FormatSize(d.Free)))
		if len(d.Features) > 0 {
			t.row("", strings.Join(d.Features, " "))
		}
	}
	if len(info.Devices) == 0 {
		t.row("device", "none: the folder has no backend that runs on this machine")
	}
	if err := t.flush(); err != nil {
		return err
	}
	if len(info.Devices) == 0 {
		return fmt.Errorf("%w in %s; %s", native.ErrNoDevice, info.Folder, native.Advice)
	}
	return nil
}
