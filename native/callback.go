package native

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/ebitengine/purego"
)

// callbacks are the C entry points into Go, made once per process.
type callbacks struct{ eval, log, abort, stop, exactProduct uintptr }

var (
	entries = sync.OnceValue(func() callbacks {
		return callbacks{
			eval:  purego.NewCallback(onEval),
			log:   purego.NewCallback(onLog),
			abort: purego.NewCallback(onAbort),
			stop:  purego.NewCallback(onStop),

			exactProduct: purego.NewCallback(onExactProduct),
		}
	})
	observers  sync.Map // user data of a scheduler's eval callback -> *Scheduler
	observerID atomic.Uintptr
	stops      sync.Map // user data of a backend's stop callback -> *atomic.Bool

	// ggml's abort and log handlers have no user data, so all libraries of the
	// process share what follows.
	activity    atomic.Pointer[string]
	abortReport atomic.Pointer[func(message, doing string)]
	logSink     atomic.Pointer[func(level int, text string)]
)

// OnAbort sets what is told ggml's last words and what was going on when ggml
// ends the process. The default writes both to standard error, since nothing
// else will get the chance.
func OnAbort(report func(message, doing string)) { abortReport.Store(&report) }

// OnLog sets what gets ggml's log lines (level 1 debug to 4 error, 5 continues
// the last); nil drops them, which is the default.
func OnLog(sink func(level int, text string)) {
	if sink == nil {
		logSink.Store(nil)
		return
	}
	logSink.Store(&sink)
}

// listen routes the library's log and abort messages to Go.
func (l *Library) listen() {
	e := entries()
	l.c.logSet(e.log, 0)
	if l.c.setAbort != nil {
		l.c.setAbort(e.abort)
	}
}

func (l *Library) setActivity(what string) { activity.Store(&what) }

// Activity returns what the process was last doing with ggml.
func Activity() string {
	if p := activity.Load(); p != nil {
		return *p
	}
	return "loading"
}

// bool (*ggml_backend_sched_eval_callback)(struct ggml_tensor * t, bool ask, void * user_data)
func onEval(t *cTensor, ask bool, user uintptr) uintptr {
	s, ok := observers.Load(user)
	if !ok {
		return 0
	}
	if s.(*Scheduler).observe(Tensor{t}, ask) {
		return 1
	}
	return 0
}

// bool (*ggml_abort_callback)(void * data)
func onStop(user uintptr) uintptr {
	if flag, ok := stops.Load(user); ok && flag.(*atomic.Bool).Load() {
		return 1
	}
	return 0
}

// void (*ggml_log_callback)(enum ggml_log_level level, const char * text, void * user_data)
func onLog(level int32, text *byte, _ uintptr) uintptr {
	if sink := logSink.Load(); sink != nil {
		(*sink)(int(level), textAt(text))
	}
	return 0
}

// void (*ggml_abort_callback_t)(const char * error_message)
func onAbort(message *byte) uintptr {
	if report := abortReport.Load(); report != nil {
		(*report)(textAt(message), Activity())
		return 0
	}
	fmt.Fprintf(os.Stderr, "ggml ends the process while %s: %s\n", Activity(), textAt(message))
	return 0
}

// recovered turns a panic of observing code into an error: it must not unwind
// through C.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("observing a tensor: %v", r)
	}
}
