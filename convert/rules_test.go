package convert

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/tensor"
)

func TestParseRules(t *testing.T) {
	tests := []struct {
		name, text string
		compat     bool
		want       []string // PATTERN → TYPE
	}{
		{"two", `^vae\.=f16,model\.=q8_0`, false, []string{`^vae\. → f16`, `model\. → q8_0`}},
		{"empty items", `,a=f16,,b=f32,`, false, []string{"a → f16", "b → f32"}},
		{"any case", `a=Q4_k`, false, []string{"a → q4_K"}},
		{"keep", `a=KEEP`, false, []string{"a → keep"}},
		{"comma in a pattern", `blocks\.[0-9]{1,2}\.w=q8_0,x=f16`, false, []string{`blocks\.[0-9]{1,2}\.w → q8_0`, "x → f16"}},
		{"equals sign in a pattern", `a=b=f16`, false, []string{"a=b → f16"}},
		{"spaces", ` a = f16 , b=f32 `, false, []string{"a → f16", "b → f32"}},
		{"compat cuts at every comma", `a=f16,b=q8_0`, true, []string{"a → f16", "b → q8_0"}},
		{"none", ``, false, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rules, err := ParseRules(tt.text, "test", tt.compat)
			require.NoError(t, err)
			var got []string
			for _, r := range rules {
				got = append(got, r.Pattern.String()+" → "+r.TypeName())
			}
			require.Equal(t, tt.want, got)
		})
	}
}

func TestBadRules(t *testing.T) {
	tests := []struct {
		text   string
		compat bool
		caret  string // the text under which the caret stands
		msg    string
	}{
		{`w=q9`, false, "q9", `unknown type "q9"`},
		{`(=f16`, false, "(=f16", "missing closing )"},
		{`a=f16,b(c=f32`, false, "(c=f32", "missing closing )"},
		{`a`, false, "", "has no '=TYPE'"},
		{`=f16`, false, "=f16", "no pattern"},
		{`a=q8_K`, false, "q8_K", "nothing can be converted to type q8_K"},
		{`a=i32`, false, "i32", "nothing can be converted to type i32"},
		{`x,(?!vae)a=f16`, false, "(?!vae)a=f16", "negative look-ahead"},
		{`(?=a)b=f16`, false, "(?=a)b=f16", "look-ahead"},
		{`b(?<=a)=f16`, false, "(?<=a)=f16", "look-behind"},
		{`(a)\1=f16`, false, `\1=f16`, `back-reference \1`},
		{`[]a]=f16`, false, "[]a]=f16", "empty class"},
		{`a**=f16`, false, "**=f16", "invalid nested repetition"},
		{`a{1,2}=f16`, true, ",2}=f16", "has no '=TYPE'"},
		{`a=keep`, true, "keep", "unknown type"},
	}
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			_, err := ParseRules(tt.text, "test", tt.compat)
			var bad *RuleError
			require.True(t, errors.As(err, &bad), "%v", err)
			require.Contains(t, bad.Msg, tt.msg)
			require.Equal(t, tt.caret, bad.Text[bad.At:])
			lines := strings.Split(bad.Caret(), "\n")
			require.Len(t, lines, 2)
			require.Equal(t, bad.At, strings.Index(lines[1], "^"))
		})
	}
}

func TestRuleLines(t *testing.T) {
	rules, err := ParseRuleLines("# comment\n\n a{1,2}=f16 \nb=q8_0\n", "my.rules")
	require.NoError(t, err)
	require.Len(t, rules, 2)
	require.Equal(t, "my.rules:3", rules[0].Origin)
	_, err = ParseRuleLines("a=f16\nb=zz\n", "my.rules")
	require.ErrorContains(t, err, "my.rules:2")
}

func TestPresets(t *testing.T) {
	for _, p := range Presets() {
		rules, err := p.Rules()
		require.NoError(t, err, p.Name)
		require.NotEmpty(t, rules, p.Name)
		require.NotEmpty(t, p.Title)
	}
	files, err := presetFiles.ReadDir("presets")
	require.NoError(t, err)
	require.Len(t, files, len(Presets()))
	_, err = FindPreset("Qwen_Image")
	require.NoError(t, err)
	_, err = FindPreset("nope")
	require.ErrorContains(t, err, "comfy")
}

func FuzzParseRules(f *testing.F) {
	for _, s := range []string{`^vae\.=f16,model\.=q8_0`, `a{1,2}=q4_K`, `(=f16`, `(?!a)b=f16`, `\`, `[=f16`, `a=b=c,d`, "\xff=f16", `[^]]=f16`} {
		f.Add(s, false)
		f.Add(s, true)
	}
	f.Fuzz(func(t *testing.T, text string, compat bool) {
		rules, err := ParseRules(text, "fuzz", compat)
		var bad *RuleError
		switch {
		case err != nil:
			require.True(t, errors.As(err, &bad))
			require.True(t, bad.At >= 0 && bad.At <= len(bad.Text))
			_ = bad.Caret()
		default:
			for _, r := range rules {
				require.NotNil(t, r.Pattern)
			}
		}
	})
}

func mustRules(t *testing.T, text string) []Rule {
	t.Helper()
	rules, err := ParseRules(text, "test", false)
	require.NoError(t, err)
	return rules
}

func TestDecide(t *testing.T) {
	const big = "model.diffusion_model.double_blocks.0.img_attn.qkv.weight"
	tests := []struct {
		name     string
		policy   Policy
		tensor   string
		shape    []int64
		stored   tensor.DType
		want     tensor.DType
		reason   Reason
		byCompat tensor.DType // the same with Compat; Invalid if it is the same
	}{
		{"no type", Policy{}, big, []int64{8, 256}, tensor.BF16, tensor.BF16, ReasonNone, 0},
		{"type", Policy{Type: tensor.Q4_K}, big, []int64{8, 256}, tensor.BF16, tensor.Q4_K, ReasonNone, 0},
		{"row does not fit", Policy{Type: tensor.Q4_K}, big, []int64{8, 96}, tensor.BF16, tensor.BF16, ReasonBlock, 0},
		{"fallback", Policy{Type: tensor.Q4_K, Fallback: []tensor.DType{tensor.Q8_0, tensor.F16}}, big, []int64{8, 96}, tensor.BF16, tensor.Q8_0, ReasonFallback, tensor.BF16},
		{"second fallback", Policy{Type: tensor.Q4_K, Fallback: []tensor.DType{tensor.Q8_0, tensor.F16}}, big, []int64{8, 30}, tensor.BF16, tensor.F16, ReasonFallback, tensor.BF16},
		{"bias", Policy{Type: tensor.F16}, "a.bias", []int64{256}, tensor.F32, tensor.F32, ReasonName, 0},
		{"embedding", Policy{Type: tensor.F16}, "time_embedding.w", []int64{4, 256}, tensor.F32, tensor.F32, ReasonName, 0},
		{"norm", Policy{Type: tensor.Q8_0}, "norm.weight", []int64{256}, tensor.F32, tensor.F32, ReasonOneRow, tensor.Q8_0},
		{"one row in disguise", Policy{Type: tensor.Q8_0}, "norm.weight", []int64{1, 256}, tensor.F32, tensor.F32, ReasonOneRow, tensor.Q8_0},
		{"norm to f16", Policy{Type: tensor.F16}, "norm.weight", []int64{256}, tensor.F32, tensor.F16, ReasonNone, 0},
		{"norm to f8", Policy{Type: tensor.F8E4M3}, "norm.weight", []int64{8}, tensor.BF16, tensor.BF16, ReasonOneRow, tensor.F8E4M3},
		{"rule forces a norm", Policy{Type: tensor.Q4_K, Rules: []Rule{}}, "norm.weight", []int64{256}, tensor.F32, tensor.F32, ReasonOneRow, tensor.Q4_K},
		{"integers", Policy{Type: tensor.F16}, "position_ids", []int64{1, 77}, tensor.I64, tensor.I64, ReasonIntegers, 0},
		{"empty", Policy{Type: tensor.Q8_0}, "x.weight", []int64{0, 4}, tensor.F32, tensor.F32, ReasonEmpty, 0},
		{"scalar", Policy{Type: tensor.Q8_0}, "x.log", nil, tensor.F32, tensor.F32, ReasonOneRow, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := Subject{Name: tt.tensor, Stored: tt.stored, Own: tt.stored, Shape: tt.shape, Numbers: isNumbers(tt.stored)}
			got := tt.policy.Decide(s)
			require.Equal(t, tt.want.String(), got.Type.String())
			require.Equal(t, tt.reason, got.Reason)
			if tt.byCompat == tensor.Invalid {
				tt.byCompat = tt.want
			}
			tt.policy.Compat = true
			require.Equal(t, tt.byCompat.String(), tt.policy.Decide(s).Type.String(), "compat")
		})
	}
}

func TestRuleWins(t *testing.T) {
	subject := func(name string, shape ...int64) Subject {
		return Subject{Name: name, Stored: tensor.F32, Own: tensor.F32, Shape: shape, Numbers: true}
	}
	p := Policy{Type: tensor.F16, Rules: mustRules(t, `norm=q8_0,bias=q8_0,odd=q4_K,hold=keep`), Fallback: []tensor.DType{tensor.Q5_0}}
	require.Equal(t, tensor.Q8_0, p.Decide(subject("norm.weight", 256)).Type)
	require.Equal(t, tensor.Q8_0, p.Decide(subject("a.bias", 256)).Type)
	d := p.Decide(subject("odd", 4, 96))
	require.Equal(t, tensor.Q5_0, d.Type)
	require.Equal(t, ReasonFallback, d.Reason)
	d = p.Decide(subject("hold", 4, 256))
	require.Equal(t, tensor.F32, d.Type)
	require.Equal(t, ReasonRule, d.Reason)

	// The neighbour's rules only change the wanted type.
	p.Compat = true
	require.Equal(t, tensor.F32, p.Decide(subject("a.bias", 256)).Type)
	require.Equal(t, tensor.Q8_0, p.Decide(subject("norm.weight", 256)).Type)
}

// Presets do what they say to the names of their models.
func TestPresetsDecide(t *testing.T) {
	tests := []struct {
		preset, name string
		want         tensor.DType // Invalid: kept as it is
	}{
		{"flux", "double_blocks.0.img_attn.qkv.weight", tensor.Q4_K},
		{"flux", "double_blocks.0.img_mod.lin.weight", tensor.Q8_0},
		{"flux", "single_blocks.0.modulation.lin.weight", tensor.Q8_0},
		{"flux", "double_stream_modulation_img.lin.weight", tensor.Q8_0},
		{"flux", "img_in.weight", tensor.Invalid},
		{"sd3", "joint_blocks.0.x_block.adaLN_modulation.1.weight", tensor.Q8_0},
		{"sd3", "joint_blocks.0.x_block.attn.qkv.weight", tensor.Q4_K},
		{"sd3", "pos_embed", tensor.Invalid},
		{"qwen-image", "transformer_blocks.5.attn.to_q.weight", tensor.Q4_K},
		{"qwen-image", "transformer_blocks.0.attn.to_q.weight", tensor.Q8_0},
		{"qwen-image", "transformer_blocks.5.img_mod.1.weight", tensor.Q8_0},
		{"qwen-image", "txt_in.weight", tensor.Invalid},
		{"wan", "blocks.3.self_attn.q.weight", tensor.Q4_K},
		{"wan", "blocks.3.modulation", tensor.F32},
		{"wan", "patch_embedding.weight", tensor.Invalid},
		{"ideogram4", "layers.7.attention.qkv.weight", tensor.Q4_K},
		{"ideogram4", "layers.7.adaln_modulation.weight", tensor.Q4_K},
		{"ideogram4", "llm_cond_proj.weight", tensor.Invalid},
		{"ideogram4", "final_layer.linear.weight", tensor.Invalid},
		{"comfy", "layers.0.attention_norm1.weight", tensor.F32},
		{"comfy", "cap_pad_token", tensor.F32},
		{"comfy", "blocks.0.attn.qkv.weight", tensor.Q4_K},
	}
	for _, tt := range tests {
		p, err := FindPreset(tt.preset)
		require.NoError(t, err)
		rules, err := p.Rules()
		require.NoError(t, err)
		if tt.want == tensor.Invalid {
			tt.want = tensor.BF16
		}
		for _, prefix := range []string{"", diffusionPrefix} {
			policy := Policy{Type: tensor.Q4_K, Rules: rules}
			d := policy.Decide(Subject{Name: prefix + tt.name, Stored: tensor.BF16, Own: tensor.BF16, Shape: []int64{256, 256}, Numbers: true})
			require.Equal(t, tt.want.String(), d.Type.String(), "%s: %s", tt.preset, prefix+tt.name)
		}
	}
}
