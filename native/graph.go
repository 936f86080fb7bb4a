package native

import (
	"errors"
	"fmt"
	"sync"
)

// ErrCompute is wrapped when a backend fails to run a graph.
var ErrCompute = errors.New("graph computation failed")

// ErrStopped is wrapped when a run ended because of Backend.Stopper.
var ErrStopped = errors.New("graph computation stopped")

const statusAborted = 1 // GGML_STATUS_ABORTED

type graphFuncs struct {
	logSet        func(callback, user uintptr)                                                                      `c:"void ggml_log_set(uintptr_t log_callback, uintptr_t user_data)"`
	setAbort      func(callback uintptr) uintptr                                                                    `c:"uintptr_t ggml_set_abort_callback(uintptr_t callback)" opt:"1"`
	newGraph      func(ctx *cContext, size uintptr, grads bool) *cGraph                                             `c:"struct ggml_cgraph * ggml_new_graph_custom(struct ggml_context * ctx, size_t size, bool grads)"`
	expand        func(g *cGraph, t *cTensor)                                                                       `c:"void ggml_build_forward_expand(struct ggml_cgraph * cgraph, struct ggml_tensor * tensor)"`
	graphNodes    func(g *cGraph) int32                                                                             `c:"int ggml_graph_n_nodes(struct ggml_cgraph * cgraph)"`
	opDesc        func(t *cTensor) string                                                                           `c:"const char * ggml_op_desc(const struct ggml_tensor * t)"`
	statusText    func(status int32) string                                                                         `c:"const char * ggml_status_to_string(enum ggml_status status)"`
	schedNew      func(backends **cBackend, bufts **cBufferType, n int32, size uintptr, parallel, off bool) *cSched `c:"ggml_backend_sched_t ggml_backend_sched_new(ggml_backend_t * backends, ggml_backend_buffer_type_t * bufts, int n_backends, size_t graph_size, bool parallel, bool op_offload)"`
	schedFree     func(s *cSched)                                                                                   `c:"void ggml_backend_sched_free(ggml_backend_sched_t sched)"`
	schedAlloc    func(s *cSched, g *cGraph) bool                                                                   `c:"bool ggml_backend_sched_alloc_graph(ggml_backend_sched_t sched, struct ggml_cgraph * graph)"`
	schedCompute  func(s *cSched, g *cGraph) int32                                                                  `c:"enum ggml_status ggml_backend_sched_graph_compute(ggml_backend_sched_t sched, struct ggml_cgraph * graph)"`
	schedReset    func(s *cSched)                                                                                   `c:"void ggml_backend_sched_reset(ggml_backend_sched_t sched)"`
	schedCallback func(s *cSched, callback, user uintptr)                                                           `c:"void ggml_backend_sched_set_eval_callback(ggml_backend_sched_t sched, uintptr_t callback, uintptr_t user_data)"`
	schedSize     func(s *cSched, b *cBackend) uintptr                                                              `c:"size_t ggml_backend_sched_get_buffer_size(ggml_backend_sched_t sched, ggml_backend_t backend)"`
}

type (
	cGraph struct{ _ [1]byte }
	cSched struct{ _ [1]byte }
)

// Graph is a list of ops in the order they run.
type Graph struct {
	ctx   *Context
	c     *cGraph
	owner *Scheduler // that has given it memory
}

// Spent reports whether the graph had memory and lost it to another. It cannot
// get any again: ggml leaves the old addresses in its tensors.
func (g *Graph) Spent() bool { return g.owner != nil && g.owner.graph != g }

// Graph makes the graph that computes the outputs. It fails with the first
// error of the ops that lead there.
func (c *Context) Graph(outputs ...Tensor) (*Graph, error) {
	if c.err != nil {
		return nil, c.err
	}
	for _, t := range outputs {
		if t.c == nil {
			return nil, fmt.Errorf("build a graph: no output tensor")
		}
	}
	g := &Graph{ctx: c, c: c.lib.c.newGraph(c.c, uintptr(c.limit), false)}
	for _, t := range outputs {
		c.SetOutput(t)
		c.lib.c.expand(g.c, t.c)
	}
	return g, nil
}

// Nodes returns the number of ops.
func (g *Graph) Nodes() int { return int(g.ctx.lib.c.graphNodes(g.c)) }

// Op returns what makes a tensor in ggml's words, such as "MUL_MAT".
func (l *Library) Op(t Tensor) string { return l.c.opDesc(t.c) }

// IsMulMat reports whether t is a matrix product, exact or ggml's own.
func (l *Library) IsMulMat(t Tensor) bool {
	return t.c != nil && (t.c.op == l.opMulMat || t.c.op != 0 && t.c.op == l.opCustom.Load())
}

// IsMulMatID reports whether t is a product by matrices that its third operand chooses.
func (l *Library) IsMulMatID(t Tensor) bool { return t.c != nil && t.c.op == l.opMulMatID }

// Observer watches a graph run. Want is asked for every op before it runs, and
// Seen gets those it wanted right after they ran, when operands and result are
// still in memory. An error stops the run.
type Observer interface {
	Want(t Tensor) bool
	Seen(t Tensor) error
}

// Scheduler runs graphs on one or more backends: it splits them by where
// weights lie and what each backend can do, and allocates what they need.
type Scheduler struct {
	lib      *Library
	backends []*Backend
	c        *cSched
	graph    *Graph // the one that is allocated
	user     uintptr
	observer Observer
	err      error
	once     sync.Once
}

// NewScheduler makes a scheduler for graphs of up to nodes ops. Earlier
// backends are preferred; the last must be a CPU.
func (l *Library) NewScheduler(nodes int, backends ...*Backend) (*Scheduler, error) {
	if n := len(backends); n == 0 || backends[n-1].Device.Kind != CPU {
		return nil, fmt.Errorf("make a scheduler: %w: the last of %d devices must be a CPU", ErrNoDevice, n)
	}
	handles := make([]*cBackend, len(backends))
	for i, b := range backends {
		handles[i] = b.c
	}
	s := &Scheduler{lib: l, backends: backends, user: observerID.Add(1)}
	s.c = l.c.schedNew(&handles[0], nil, int32(len(handles)), uintptr(nodes), false, true)
	if s.c == nil {
		return nil, fmt.Errorf("make a scheduler for %d nodes: %w", nodes, ErrOutOfMemory)
	}
	observers.Store(s.user, s)
	return s, nil
}

// Close frees the scheduler and the memory graphs ran in.
func (s *Scheduler) Close() {
	s.once.Do(func() {
		observers.Delete(s.user)
		s.lib.c.schedFree(s.c)
	})
}

// Observe sets who watches from now on; nil for nobody, which is faster.
func (s *Scheduler) Observe(o Observer) {
	s.observer = o
	if o == nil {
		s.lib.c.schedCallback(s.c, 0, 0)
		return
	}
	s.lib.c.schedCallback(s.c, entries().eval, s.user)
}

// Alloc gives the graph's tensors memory, taking it from the graph that had it
// before; inputs can then be set. A graph that already has memory keeps it and
// can run again. A Spent graph is refused.
func (s *Scheduler) Alloc(g *Graph) error {
	if s.graph == g {
		return nil
	}
	if g.owner != nil {
		return fmt.Errorf("allocate a graph of %d nodes: it had memory before", g.Nodes())
	}
	s.lib.setActivity("allocating " + g.ctx.scope)
	s.lib.c.schedReset(s.c)
	s.graph, g.owner = nil, s
	if !s.lib.c.schedAlloc(s.c, g.c) {
		return fmt.Errorf("allocate a graph of %d nodes on %s: %w", g.Nodes(), s.backends[0].Device.Name, ErrOutOfMemory)
	}
	s.graph = g
	return nil
}

// Release makes the scheduler forget a graph that is about to be freed.
func (s *Scheduler) Release(g *Graph) {
	if s.graph == g {
		s.lib.c.schedReset(s.c)
		s.graph = nil
	}
}

// BufferSize returns the bytes that graphs occupy on all backends.
func (s *Scheduler) BufferSize() int64 {
	var n int64
	for _, b := range s.backends {
		n += int64(s.lib.c.schedSize(s.c, b.c))
	}
	return n
}

// Run computes the allocated graph, once its inputs are set. what names the
// work in errors and in ggml's last words.
func (s *Scheduler) Run(what string) error {
	if s.graph == nil {
		return fmt.Errorf("run %s: no graph is allocated", what)
	}
	s.err = nil
	s.lib.setActivity("running " + what)
	status := s.lib.c.schedCompute(s.c, s.graph.c)
	s.lib.setActivity("idle after " + what)
	switch {
	case s.err != nil:
		return fmt.Errorf("run %s: %w", what, s.err)
	case status == statusAborted:
		return fmt.Errorf("run %s: %w", what, ErrStopped)
	case status != 0:
		return fmt.Errorf("run %s: %w: %s", what, ErrCompute, s.lib.c.statusText(status))
	}
	return nil
}

// observe is called by ggml for every op. A false answer to ask groups the op
// with the next ones; to the second call it stops the run.
func (s *Scheduler) observe(t Tensor, ask bool) bool {
	if s.err != nil || s.observer == nil {
		// After an error every op must still be asked for, else ggml would run
		// the rest of the graph as one group before it stops.
		return s.err != nil && ask
	}
	defer recovered(&s.err)
	if ask {
		return s.observer.Want(t)
	}
	s.err = s.observer.Seen(t)
	return s.err == nil
}
