package graph

import (
	"fmt"

	"github.com/sdtool/sdtool/native"
)

// maxNodes bounds the ops of one graph. SDXL's network has about 6000.
const maxNodes = 20480

// Device is what graphs run on: one device of the ggml library, with the CPU
// for the ops it lacks.
type Device struct {
	Lib *native.Library

	main     *native.Backend
	backends []*native.Backend
	sched    *native.Scheduler
	observer native.Observer
	threads  int
	running  int // threads that ggml was last told to use
}

// OpenDevice sets up the device with ggml's name for it ("CUDA0", "Vulkan0"),
// "" being the CPU, to compute with the given number of threads.
func OpenDevice(lib *native.Library, name string, threads int) (*Device, error) {
	d := &Device{Lib: lib, threads: max(threads, 1)}
	var err error
	if d.main, err = lib.NewBackend(name); err != nil {
		return nil, err
	}
	d.backends = []*native.Backend{d.main}
	if d.main.Device.Kind != native.CPU {
		cpu, err := lib.NewBackend("")
		if err != nil {
			d.Close()
			return nil, err
		}
		d.backends = append(d.backends, cpu)
	}
	d.useThreads(d.threads)
	if d.sched, err = lib.NewScheduler(maxNodes, d.backends...); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// useThreads sets how many of its threads ggml uses.
func (d *Device) useThreads(n int) {
	if n == d.running {
		return
	}
	for _, b := range d.backends {
		b.SetThreads(n)
	}
	d.running = n
}

// Close frees the device. Programs and weights on it must be closed before.
func (d *Device) Close() {
	if d.sched != nil {
		d.sched.Close()
	}
	for i := len(d.backends) - 1; i >= 0; i-- {
		d.backends[i].Close()
	}
	d.backends = nil
}

// Info describes the device.
func (d *Device) Info() native.Device { return d.main.Device }

// Observe sets who watches every op of every program from now on; nil for nobody.
func (d *Device) Observe(o native.Observer) {
	d.observer = o
	d.sched.Observe(o)
}

// WorkBytes returns the memory that running graphs take so far, weights not counted.
func (d *Device) WorkBytes() int64 { return d.sched.BufferSize() }

// NonFiniteError tells that a graph computed NaN or an infinity, and where first.
type NonFiniteError struct {
	Program string  // which graph
	Layer   string  // scope that built the op
	Op      string  // ggml's word for the op
	Value   float32 // what it computed
}

func (e *NonFiniteError) Error() string {
	return fmt.Sprintf("%s computed %v, first in %s (%s)", e.Program, e.Value, e.Layer, e.Op)
}
