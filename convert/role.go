package convert

import (
	"fmt"
	"strings"

	"github.com/sdtool/sdtool/rename"
	"github.com/sdtool/sdtool/tensor"
)

// Role is what a component is for: it decides the prefix of its tensors.
type Role uint8

// Roles, in the order in which stable-diffusion.cpp reads them (those it has).
const (
	RoleModel Role = iota
	RoleClipL
	RoleClipG
	RoleClipVision
	RoleT5
	RoleLLM
	RoleLLMVision
	RoleDiffusion
	RoleHighNoise
	RoleUncond
	RoleVAE
	RoleConnectors
	RoleAudioVAE
	RoleControlNet

	numRoles
)

type roleRow struct {
	name   string // flag spelling with underscores, as stable-diffusion.cpp has it
	title  string
	prefix string // "" adds none
	unet   string // prefix in SD1, SD2 and SDXL, if another
	compat bool   // stable-diffusion.cpp's convert reads it
}

var roleRows = [numRoles]roleRow{
	RoleModel:      {name: "model", title: "whole model", compat: true},
	RoleClipL:      {name: "clip_l", title: "CLIP-L text encoder", prefix: "text_encoders.clip_l.transformer.", unet: "cond_stage_model.transformer.", compat: true},
	RoleClipG:      {name: "clip_g", title: "CLIP-G text encoder", prefix: "text_encoders.clip_g.transformer.", unet: "cond_stage_model.1.transformer.", compat: true},
	RoleClipVision: {name: "clip_vision", title: "CLIP vision encoder", prefix: "cond_stage_model.transformer."},
	RoleT5:         {name: "t5xxl", title: "T5 text encoder", prefix: "text_encoders.t5xxl.transformer.", compat: true},
	RoleLLM:        {name: "llm", title: "LLM text encoder", prefix: "text_encoders.llm."},
	RoleLLMVision:  {name: "llm_vision", title: "vision tower of the LLM", prefix: "text_encoders.llm.visual."},
	RoleDiffusion:  {name: "diffusion-model", title: "diffusion model", prefix: diffusionPrefix, compat: true},
	RoleHighNoise:  {name: "high-noise-diffusion-model", title: "high-noise diffusion model", prefix: "model.high_noise_diffusion_model."},
	RoleUncond:     {name: "uncond-diffusion-model", title: "unconditional diffusion model", prefix: diffusionPrefix + "uncond."},
	RoleVAE:        {name: "vae", title: "VAE", prefix: "vae.", compat: true},
	RoleConnectors: {name: "embeddings-connectors", title: "embeddings connectors"},
	RoleAudioVAE:   {name: "audio-vae", title: "audio VAE"},
	RoleControlNet: {name: "control-net", title: "ControlNet"},
}

const diffusionPrefix = "model.diffusion_model."

// Roles lists every role in reading order.
func Roles() []Role {
	roles := make([]Role, numRoles)
	for i := range roles {
		roles[i] = Role(i)
	}
	return roles
}

// String returns the name of the role's flag: "clip_l", "diffusion-model".
func (r Role) String() string { return roleRows[r].name }

// Title returns what the role's component is, in words.
func (r Role) Title() string { return roleRows[r].title }

// Compat reports whether stable-diffusion.cpp's convert mode reads the role.
func (r Role) Compat() bool { return roleRows[r].compat }

// Prefix returns what the role puts before its tensors' names. Text encoders of
// the UNet families live elsewhere than those of later models;
// stable-diffusion.cpp's convert does not make that difference (compat).
func (r Role) Prefix(f rename.Family, compat bool) string {
	row := roleRows[r]
	if !compat && row.unet != "" && f.In(rename.GroupUNet) {
		return row.unet
	}
	return row.prefix
}

// ParseRole returns the role with the given flag name.
func ParseRole(name string) (Role, error) {
	for r, row := range roleRows {
		if strings.ReplaceAll(row.name, "_", "-") == strings.ReplaceAll(name, "_", "-") {
			return Role(r), nil
		}
	}
	return 0, fmt.Errorf("unknown component %q", name)
}

// Input is one component of a conversion.
type Input struct {
	Role Role
	Path string
	// Rewrite, if set, renames the component's tensors before anything else is
	// done with their names.
	Rewrite func([]tensor.Tensor) (*rename.Result, error)
	// Sort orders the component's tensors by name.
	Sort bool
}
