package engine

import (
	"context"
	"fmt"
	"sort"

	"github.com/sdtool/sdtool/engine/graph"
	"github.com/sdtool/sdtool/engine/sample"
	"github.com/sdtool/sdtool/engine/text"
	"github.com/sdtool/sdtool/native"
	"github.com/sdtool/sdtool/tensor"
)

// Options say how a model is loaded.
type Options struct {
	Device         string // ggml's name of the device; "" is the CPU
	Threads        int    // at most 0 means one
	FlashAttention bool   // fused attention: less memory, slightly other numbers
	// Fast leaves matrix products to ggml's own kernels, whose sums differ from CPU
	// to CPU. Otherwise products by f16 and f32 weights of Stable Diffusion 1.x, 2.x and
	// XL are added up in the order of native/lanesum where the machine has kernels for
	// that (AVX-512) and the device is a CPU: several times slower, but bit for bit what
	// stable-diffusion.cpp's reference computes. Decoding and the networks that are
	// transformers are always left to ggml.
	Fast bool
	// NoMap reads weights into memory also where they could be used from a mapped
	// file. Mapped files must not be changed while the model is in use.
	NoMap bool
	// NoPictures leaves the decoder out: latents are computed, pictures are not.
	NoPictures bool
	// SeparateVAE tells that the decoder was given by the user in a file of its
	// own, and so is trusted not to overflow f16.
	SeparateVAE bool
	// Prediction says what the network predicts; nil finds out.
	Prediction *sample.Prediction
	// FlowShift moves the noise levels of flow models; 0 is the family's own.
	FlowShift float32
	// T5Tokenizer cuts prompts for a T5 encoder; without one such models fail to load
	// with text.ErrNoTokenizer.
	T5Tokenizer *text.Unigram
	// Progress is told the bytes of weights read, from any goroutine; it may be nil.
	Progress func(done, total int64)
}

// Model is a loaded model. It belongs to one goroutine at a time.
type Model struct {
	device   *graph.Device
	weights  *graph.Weights
	net      network
	denoiser *sample.Model
}

// Load reads a model. It fails with ErrUnknownFamily, ErrNoTextEncoder,
// ErrNoDecoder (unless NoPictures is set), a *graph.MissingError, and
// native.ErrOutOfMemory. The tensors' files may be closed when it returns.
func Load(ctx context.Context, lib *native.Library, tensors []tensor.Tensor, o Options) (*Model, error) {
	c := &checkpoint{options: o, byName: make(map[string]tensor.Tensor, len(tensors))}
	for _, t := range tensors {
		c.byName[t.Name] = t
		c.names = append(c.names, t.Name)
	}
	sort.Strings(c.names)
	f, err := find(c)
	if err != nil {
		return nil, err
	}
	m := &Model{}
	if m.device, err = graph.OpenDevice(lib, o.Device, o.Threads); err != nil {
		return nil, err
	}
	if err := m.load(ctx, c, f, tensors); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

func (m *Model) load(ctx context.Context, c *checkpoint, f family, tensors []tensor.Tensor) error {
	var err error
	if m.weights, err = graph.NewWeights(m.device, tensors); err != nil {
		return err
	}
	if !c.options.NoMap {
		m.weights.MapFiles()
	}
	c.device, c.weights = m.device, m.weights
	if m.net, err = f.open(c); err != nil {
		return fmt.Errorf("open a model of %s: %w", f.name, err)
	}
	if err := m.weights.Load(ctx, c.options.Progress); err != nil {
		return err
	}
	m.denoiser, err = m.net.denoiser(ctx)
	return err
}

// Close frees the model.
func (m *Model) Close() {
	if m.net != nil {
		m.net.close()
	}
	if m.weights != nil {
		m.weights.Close()
	}
	m.device.Close()
}

// Traits describes the model.
func (m *Model) Traits() Traits { return m.net.traits() }

// Prediction is what the network predicts.
func (m *Model) Prediction() sample.Prediction { return m.denoiser.Prediction() }

// Device describes what the model computes on.
func (m *Model) Device() native.Device { return m.device.Info() }

// WeightBytes is the memory of the weights, WorkBytes that of running graphs.
func (m *Model) WeightBytes() int64 { return m.weights.Bytes() }

// WorkBytes is the memory that running graphs took so far.
func (m *Model) WorkBytes() int64 { return m.device.WorkBytes() }

// Matrices lists the weights that matrix products use, as they are stored: what
// an importance matrix can cover.
func (m *Model) Matrices() []tensor.Info { return m.weights.Asked(graph.Matrix) }

// Product is one matrix product, seen right after it ran.
type Product struct {
	Name   string // of the weight
	Weight native.Tensor
	Input  native.Tensor // the activations
	IDs    native.Tensor // chosen matrices per row, for products by chosen matrices; else zero
}

// Watch sets who sees the matrix products by named weights: want chooses by
// name, seen gets them and may stop the generation with an error. Nil stops
// watching.
func (m *Model) Watch(want func(name string) bool, seen func(Product) error) {
	if seen == nil {
		m.device.Observe(nil)
		return
	}
	m.device.Observe(&productWatcher{lib: m.device.Lib, weights: m.weights, want: want, seen: seen})
}

type productWatcher struct {
	lib     *native.Library
	weights *graph.Weights
	want    func(string) bool
	seen    func(Product) error
}

// Want is asked for every op of a graph before it runs.
func (p *productWatcher) Want(t native.Tensor) bool {
	if !p.lib.IsMulMat(t) && !p.lib.IsMulMatID(t) {
		return false
	}
	name := p.weights.Name(t.Source(0))
	return name != "" && p.want(name)
}

// Seen gets the ops that Want chose.
func (p *productWatcher) Seen(t native.Tensor) error {
	out := Product{Name: p.weights.Name(t.Source(0)), Weight: t.Source(0), Input: t.Source(1)}
	if p.lib.IsMulMatID(t) {
		out.IDs = t.Source(2)
	}
	return p.seen(out)
}
