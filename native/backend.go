package native

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ebitengine/purego"
)

// ErrNoDevice is wrapped when the library offers no device, or not the one asked for.
var ErrNoDevice = errors.New("no such device")

// ErrOutOfMemory is wrapped when a backend cannot allocate a buffer.
var ErrOutOfMemory = errors.New("out of memory")

type backendFuncs struct {
	loadAll        func(dir string)                                        `c:"void ggml_backend_load_all_from_path(const char * dir_path)"`
	devCount       func() uintptr                                          `c:"size_t ggml_backend_dev_count(void)"`
	devGet         func(i uintptr) *cDevice                                `c:"ggml_backend_dev_t ggml_backend_dev_get(size_t index)"`
	devName        func(d *cDevice) string                                 `c:"const char * ggml_backend_dev_name(ggml_backend_dev_t device)"`
	devDescription func(d *cDevice) string                                 `c:"const char * ggml_backend_dev_description(ggml_backend_dev_t device)"`
	devMemory      func(d *cDevice, free, total *uintptr)                  `c:"void ggml_backend_dev_memory(ggml_backend_dev_t device, size_t * free, size_t * total)"`
	devType        func(d *cDevice) int32                                  `c:"enum ggml_backend_dev_type ggml_backend_dev_type(ggml_backend_dev_t device)"`
	devReg         func(d *cDevice) *cRegistry                             `c:"ggml_backend_reg_t ggml_backend_dev_backend_reg(ggml_backend_dev_t device)"`
	devInit        func(d *cDevice, params string) *cBackend               `c:"ggml_backend_t ggml_backend_dev_init(ggml_backend_dev_t device, const char * params)"`
	regName        func(r *cRegistry) string                               `c:"const char * ggml_backend_reg_name(ggml_backend_reg_t reg)"`
	regProc        func(r *cRegistry, name string) unsafe.Pointer          `c:"void * ggml_backend_reg_get_proc_address(ggml_backend_reg_t reg, const char * name)"`
	backendFree    func(b *cBackend)                                       `c:"void ggml_backend_free(ggml_backend_t backend)"`
	backendBuft    func(b *cBackend) *cBufferType                          `c:"ggml_backend_buffer_type_t ggml_backend_get_default_buffer_type(ggml_backend_t backend)"`
	buftAlloc      func(t *cBufferType, size uintptr) *cBuffer             `c:"ggml_backend_buffer_t ggml_backend_buft_alloc_buffer(ggml_backend_buffer_type_t buft, size_t size)"`
	buftAlign      func(t *cBufferType) uintptr                            `c:"size_t ggml_backend_buft_get_alignment(ggml_backend_buffer_type_t buft)"`
	buftMax        func(t *cBufferType) uintptr                            `c:"size_t ggml_backend_buft_get_max_size(ggml_backend_buffer_type_t buft)"`
	buftAllocSize  func(t *cBufferType, x *cTensor) uintptr                `c:"size_t ggml_backend_buft_get_alloc_size(ggml_backend_buffer_type_t buft, const struct ggml_tensor * tensor)"`
	bufferFree     func(b *cBuffer)                                        `c:"void ggml_backend_buffer_free(ggml_backend_buffer_t buffer)"`
	bufferBase     func(b *cBuffer) unsafe.Pointer                         `c:"void * ggml_backend_buffer_get_base(ggml_backend_buffer_t buffer)"`
	bufferSize     func(b *cBuffer) uintptr                                `c:"size_t ggml_backend_buffer_get_size(ggml_backend_buffer_t buffer)"`
	bufferHost     func(b *cBuffer) bool                                   `c:"bool ggml_backend_buffer_is_host(ggml_backend_buffer_t buffer)"`
	bufferUsage    func(b *cBuffer, usage int32)                           `c:"void ggml_backend_buffer_set_usage(ggml_backend_buffer_t buffer, enum ggml_backend_buffer_usage usage)"`
	fromHost       func(p unsafe.Pointer, size uintptr) *cBuffer           `c:"ggml_backend_buffer_t ggml_backend_cpu_buffer_from_ptr(void * ptr, size_t size)"`
	tensorAlloc    func(b *cBuffer, t *cTensor, addr unsafe.Pointer) int32 `c:"enum ggml_status ggml_backend_tensor_alloc(ggml_backend_buffer_t buffer, struct ggml_tensor * tensor, void * addr)"`
	tensorSet      func(t *cTensor, data unsafe.Pointer, off, n uintptr)   `c:"void ggml_backend_tensor_set(struct ggml_tensor * tensor, const void * data, size_t offset, size_t size)"`
	tensorGet      func(t *cTensor, data unsafe.Pointer, off, n uintptr)   `c:"void ggml_backend_tensor_get(const struct ggml_tensor * tensor, void * data, size_t offset, size_t size)"`
}

type (
	cDevice     struct{ _ [1]byte }
	cRegistry   struct{ _ [1]byte }
	cBackend    struct{ _ [1]byte }
	cBufferType struct{ _ [1]byte }
)

// DeviceKind is what a device is (enum ggml_backend_dev_type).
type DeviceKind int32

// Kinds of devices.
const (
	CPU         DeviceKind = iota // system memory
	GPU                           // its own memory
	IGPU                          // integrated, shares system memory
	Accelerator                   // helps the CPU, such as BLAS
	Meta                          // several devices acting as one
)

var deviceKinds = [...]string{CPU: "cpu", GPU: "gpu", IGPU: "igpu", Accelerator: "accel", Meta: "meta"}

// String returns the kind in lower case.
func (k DeviceKind) String() string {
	if k >= 0 && int(k) < len(deviceKinds) {
		return deviceKinds[k]
	}
	return fmt.Sprintf("kind(%d)", int32(k))
}

// Device is something that can compute.
type Device struct {
	Name        string // as ggml spells it: CPU, CUDA0, Vulkan0, Metal, RPC[host:port]
	Description string
	Backend     string // which backend drives it
	Kind        DeviceKind
	Free, Total int64 // bytes of memory
	// Features are what the backend was built for or found at run time (AVX2 …), those that are on.
	Features []string

	c *cDevice
}

// Devices loads the library's backends, once, and lists their devices in
// ggml's order of preference.
func (l *Library) Devices() []Device {
	l.loadBackends.Do(func() { l.c.loadAll(l.Paths.Dir) })
	var all []Device
	for i := range l.c.devCount() {
		c := l.c.devGet(i)
		var free, total uintptr
		l.c.devMemory(c, &free, &total)
		reg := l.c.devReg(c)
		all = append(all, Device{
			Name: l.c.devName(c), Description: l.c.devDescription(c), Backend: l.c.regName(reg),
			Kind: DeviceKind(l.c.devType(c)), Free: int64(free), Total: int64(total),
			Features: l.features(reg), c: c,
		})
	}
	return all
}

// feature mirrors struct ggml_backend_feature.
type feature struct{ name, value *byte }

func (l *Library) features(reg *cRegistry) []string {
	proc := l.c.regProc(reg, "ggml_backend_get_features")
	if proc == nil {
		return nil
	}
	// struct ggml_backend_feature * (*)(ggml_backend_reg_t reg), ended by a NULL name
	var get func(*cRegistry) *feature
	purego.RegisterFunc(&get, uintptr(proc))
	var on []string
	for f := get(reg); f != nil && f.name != nil; f = (*feature)(unsafe.Add(unsafe.Pointer(f), unsafe.Sizeof(*f))) {
		if v := textAt(f.value); v == "1" {
			on = append(on, textAt(f.name))
		}
	}
	return on
}

func textAt(p *byte) string {
	if p == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}

// Backend is a device that has been set up to compute, with its memory. One
// goroutine at a time may use it.
type Backend struct {
	Device Device

	lib  *Library
	c    *cBackend
	buft *cBufferType
	once sync.Once

	stop   *atomic.Bool
	stopID uintptr
}

// NewBackend sets up the device with the given name, or for "" the first CPU.
// It fails with ErrNoDevice, naming what there is.
func (l *Library) NewBackend(name string) (*Backend, error) {
	devices := l.Devices()
	i := slices.IndexFunc(devices, func(d Device) bool {
		return d.Name == name || (name == "" && d.Kind == CPU)
	})
	if i < 0 {
		names := make([]string, len(devices))
		for j, d := range devices {
			names[j] = d.Name
		}
		return nil, fmt.Errorf("device %q: %w; %s offers %v", name, ErrNoDevice, l.Paths.Dir, names)
	}
	c := l.c.devInit(devices[i].c, "")
	if c == nil {
		return nil, fmt.Errorf("device %q: it cannot be started", devices[i].Name)
	}
	return &Backend{Device: devices[i], lib: l, c: c, buft: l.c.backendBuft(c)}, nil
}

// SetThreads sets how many threads compute; backends that have none ignore it.
func (b *Backend) SetThreads(n int) {
	proc := b.lib.c.regProc(b.lib.c.devReg(b.Device.c), "ggml_backend_set_n_threads")
	if proc == nil {
		return
	}
	// void (*)(ggml_backend_t backend, int n_threads)
	var set func(*cBackend, int32)
	purego.RegisterFunc(&set, uintptr(proc))
	set(b.c, int32(max(n, 1)))
}

// Stopper returns a flag that makes the device stop between two ops while it is
// set; a run then fails with ErrStopped. Devices that cannot stop ignore it.
func (b *Backend) Stopper() *atomic.Bool {
	if b.stop != nil {
		return b.stop
	}
	b.stop = new(atomic.Bool)
	proc := b.lib.c.regProc(b.lib.c.devReg(b.Device.c), "ggml_backend_set_abort_callback")
	if proc != nil {
		id := observerID.Add(1)
		stops.Store(id, b.stop)
		// void (*)(ggml_backend_t backend, ggml_abort_callback callback, void * data)
		var set func(*cBackend, uintptr, uintptr)
		purego.RegisterFunc(&set, uintptr(proc))
		set(b.c, entries().stop, id)
		b.stopID = id
	}
	return b.stop
}

// Close releases the device; buffers and schedulers must be gone before.
func (b *Backend) Close() {
	b.once.Do(func() {
		b.lib.c.backendFree(b.c)
		stops.Delete(b.stopID)
	})
}

// Buffer is memory of a backend that holds tensors.
type Buffer struct {
	lib  *Library
	c    *cBuffer
	base unsafe.Pointer
	size int64
	once sync.Once
}

// Alloc allocates size bytes of the backend's memory. It fails with ErrOutOfMemory.
func (b *Backend) Alloc(size int64) (*Buffer, error) {
	if size < 0 || uint64(size) > uint64(b.lib.c.buftMax(b.buft)) {
		return nil, fmt.Errorf("allocate %d bytes on %s: %w: its limit is %d", size, b.Device.Name, ErrOutOfMemory, b.lib.c.buftMax(b.buft))
	}
	c := b.lib.c.buftAlloc(b.buft, uintptr(size))
	if c == nil {
		return nil, fmt.Errorf("allocate %d bytes on %s: %w", size, b.Device.Name, ErrOutOfMemory)
	}
	b.lib.c.bufferUsage(c, 1) // weights: the scheduler runs ops where they lie
	return newBuffer(b.lib, c), nil
}

// Wrap makes host memory, usually a mapped file, a buffer of the CPU. The
// memory stays its owner's, who keeps it until the buffer is closed; it must
// begin at a multiple of 64 bytes, as pages do.
func (l *Library) Wrap(memory []byte) (*Buffer, error) {
	p := unsafe.Pointer(unsafe.SliceData(memory))
	if len(memory) == 0 || uintptr(p)%64 != 0 {
		return nil, fmt.Errorf("wrap %d bytes of memory as a buffer: not aligned to 64 bytes", len(memory))
	}
	c := l.c.fromHost(p, uintptr(len(memory)))
	if c == nil {
		return nil, fmt.Errorf("wrap %d bytes of memory as a buffer: %w", len(memory), ErrOutOfMemory)
	}
	l.c.bufferUsage(c, 1)
	return newBuffer(l, c), nil
}

func newBuffer(l *Library, c *cBuffer) *Buffer {
	return &Buffer{lib: l, c: c, base: l.c.bufferBase(c), size: int64(l.c.bufferSize(c))}
}

// Close frees the memory; tensors in it are gone.
func (b *Buffer) Close() { b.once.Do(func() { b.lib.c.bufferFree(b.c) }) }

// Size returns the buffer's size in bytes.
func (b *Buffer) Size() int64 { return b.size }

// Alignment returns the alignment in bytes that tensors need in the backend's memory.
func (b *Backend) Alignment() int64 { return int64(b.lib.c.buftAlign(b.buft)) }

// AllocSize returns the bytes a tensor takes in the backend's memory.
func (b *Backend) AllocSize(t Tensor) int64 { return int64(b.lib.c.buftAllocSize(b.buft, t.c)) }

// Place puts a tensor into the buffer at an offset.
func (b *Buffer) Place(t Tensor, offset int64) error {
	if t.c == nil || t.c.buffer != nil || t.c.data != nil {
		return fmt.Errorf("place a tensor at offset %d: it already has memory", offset)
	}
	if n := t.Bytes(); offset < 0 || n > b.size-offset {
		return fmt.Errorf("place a tensor of %d bytes at offset %d of a buffer of %d: it does not fit", n, offset, b.size)
	}
	if status := b.lib.c.tensorAlloc(b.c, t.c, unsafe.Add(b.base, offset)); status != 0 {
		return fmt.Errorf("place a tensor at offset %d: ggml status %d", offset, status)
	}
	return nil
}
