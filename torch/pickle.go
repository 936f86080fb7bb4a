package torch

import (
	"fmt"
	"strconv"

	"github.com/sdtool/sdtool/tensor"
)

// Limits of the machine.
const (
	maxDepth  = 64        // of tensor subclasses, and of dicts on the way to a tensor
	baseSpend = 8 << 20   // bytes of objects any file may make
	maxSpend  = 512 << 20 // bytes of objects the biggest file may make
)

// machine runs one pickle. Opcodes are those of CPython's pickletools.
type machine struct {
	in       *stream
	stack    []any
	marks    []int
	memo     map[uint32]any
	storages map[string]*place
	spent    int64 // bytes of objects made, estimated
	limit    int64
	inner    int
}

func newMachine(in *stream, fileSize int64) *machine {
	return &machine{in: in, memo: make(map[uint32]any), storages: make(map[string]*place),
		limit: min(maxSpend, baseSpend+2*fileSize)}
}

// next makes a machine for the pickle that follows in the same stream; what was
// spent stays spent.
func (m *machine) next() {
	clear(m.memo)
	m.stack, m.marks = m.stack[:0], m.marks[:0]
}

func (m *machine) fail(format string, args ...any) error {
	return m.in.fail(KindPickle, "the pickle is not one of torch: "+format, args...)
}

func (m *machine) spend(n int64) { m.spent += n }
func (m *machine) over() bool    { return m.spent > m.limit }
func (m *machine) tooMuch() error {
	return m.in.fail(KindLimit, "the pickle makes more objects than %d bytes can hold", m.limit)
}

// Estimated bytes of what an opcode leaves behind.
const (
	costSlot = 48  // a place on the stack
	costBox  = 32  // a small object
	costDict = 128 // an entry of a dict
	costMemo = 96  // an entry of the memo
)

// run executes one pickle up to its STOP and returns the object that is left.
func (m *machine) run() (any, error) {
	for {
		b, err := m.in.take(1)
		if err != nil {
			return nil, err
		}
		op := b[0]
		if op == '.' { // STOP
			if len(m.marks) > 0 {
				return nil, m.fail("found a mark at its end")
			}
			return m.pop()
		}
		if m.spend(1); m.over() {
			return nil, m.tooMuch()
		}
		f := opcodes[op]
		if f == nil {
			return nil, m.fail("found opcode 0x%02x, which torch does not use", op)
		}
		if err := f(m); err != nil {
			return nil, err
		}
	}
}

func (m *machine) push(v any) error {
	m.spend(costSlot)
	m.stack = append(m.stack, v)
	return nil
}

// pop takes the top of the stack, but not a mark's.
func (m *machine) pop() (any, error) {
	floor := 0
	if len(m.marks) > 0 {
		floor = m.marks[len(m.marks)-1]
	}
	if len(m.stack) <= floor {
		return nil, m.fail("its stack is empty")
	}
	v := m.stack[len(m.stack)-1]
	m.stack = m.stack[:len(m.stack)-1]
	return v, nil
}

// top returns the top of the stack without taking it.
func (m *machine) top() (any, error) {
	v, err := m.pop()
	if err != nil {
		return nil, err
	}
	m.stack = append(m.stack, v)
	return v, nil
}

// popMark takes everything above the last mark, in a slice of its own.
func (m *machine) popMark() ([]any, error) {
	if len(m.marks) == 0 {
		return nil, m.fail("found no mark")
	}
	at := m.marks[len(m.marks)-1]
	m.marks = m.marks[:len(m.marks)-1]
	items := append([]any(nil), m.stack[at:]...)
	m.spend(16 * int64(len(items)))
	m.stack = m.stack[:at]
	return items, nil
}

func (m *machine) popN(n int) ([]any, error) {
	items := make([]any, n)
	for i := n - 1; i >= 0; i-- {
		var err error
		if items[i], err = m.pop(); err != nil {
			return nil, err
		}
	}
	return items, nil
}

// opcodes is the table of what is read; nil is refused.
var opcodes [256]func(*machine) error

func init() {
	opcodes = [256]func(*machine) error{
		0x80: func(m *machine) error { return m.proto() },
		0x95: func(m *machine) error { return m.in.skip(8) }, // FRAME; a hint about lengths

		'(': func(m *machine) error { m.spend(costSlot); m.marks = append(m.marks, len(m.stack)); return nil },
		'0': func(m *machine) error { return m.discard() },
		'1': func(m *machine) error { _, err := m.popMark(); return err },
		'2': func(m *machine) error { return m.dup() },

		'N':  func(m *machine) error { return m.push(nil) },
		0x88: func(m *machine) error { return m.push(true) },
		0x89: func(m *machine) error { return m.push(false) },
		'J':  func(m *machine) error { return m.integer(4, true) },
		'K':  func(m *machine) error { return m.integer(1, false) },
		'M':  func(m *machine) error { return m.integer(2, false) },
		'I':  func(m *machine) error { return m.intLine() },
		'L':  func(m *machine) error { return m.intLine() },
		'F':  func(m *machine) error { return m.floatLine() },
		'G':  func(m *machine) error { return m.float() },
		0x8a: func(m *machine) error { return m.long(1) },
		0x8b: func(m *machine) error { return m.long(4) },

		'S':  func(m *machine) error { return m.quoted() },
		'V':  func(m *machine) error { return m.unicodeLine() },
		'T':  func(m *machine) error { return m.text(4, false) },
		'U':  func(m *machine) error { return m.text(1, false) },
		'X':  func(m *machine) error { return m.text(4, true) },
		0x8c: func(m *machine) error { return m.text(1, true) },
		0x8d: func(m *machine) error { return m.text(8, true) },
		'B':  func(m *machine) error { return m.raw(4) },
		'C':  func(m *machine) error { return m.raw(1) },
		0x8e: func(m *machine) error { return m.raw(8) },
		0x96: func(m *machine) error { return m.raw(8) },

		')':  func(m *machine) error { return m.tuple(0) },
		0x85: func(m *machine) error { return m.tuple(1) },
		0x86: func(m *machine) error { return m.tuple(2) },
		0x87: func(m *machine) error { return m.tuple(3) },
		't':  func(m *machine) error { return m.marked(func(items []any) any { return &tuple{items} }) },
		']':  func(m *machine) error { m.spend(costBox); return m.push(&list{}) },
		0x8f: func(m *machine) error { m.spend(costBox); return m.push(&list{}) },
		'l':  func(m *machine) error { return m.marked(func(items []any) any { return &list{items} }) },
		0x91: func(m *machine) error { return m.marked(func(items []any) any { return &list{items} }) },
		'a':  func(m *machine) error { return m.append(func() ([]any, error) { return m.popN(1) }) },
		'e':  func(m *machine) error { return m.append(m.popMark) },
		0x90: func(m *machine) error { return m.append(m.popMark) },
		'}':  func(m *machine) error { m.spend(2 * costBox); return m.push(&dict{}) },
		'd':  func(m *machine) error { return m.dict() },
		's':  func(m *machine) error { return m.setItems(func() ([]any, error) { return m.popN(2) }) },
		'u':  func(m *machine) error { return m.setItems(m.popMark) },

		'p':  func(m *machine) error { return m.lineIndex(m.put) },
		'q':  func(m *machine) error { return m.index(1, m.put) },
		'r':  func(m *machine) error { return m.index(4, m.put) },
		0x94: func(m *machine) error { return m.put(uint32(len(m.memo))) },
		'g':  func(m *machine) error { return m.lineIndex(m.get) },
		'h':  func(m *machine) error { return m.index(1, m.get) },
		'j':  func(m *machine) error { return m.index(4, m.get) },

		'c':  func(m *machine) error { return m.global() },
		0x93: func(m *machine) error { return m.stackGlobal() },
		'R':  func(m *machine) error { return m.reduce(2) },
		0x81: func(m *machine) error { return m.reduce(2) },
		0x92: func(m *machine) error { return m.reduce(3) },
		'i':  func(m *machine) error { return m.inst() },
		'o':  func(m *machine) error { return m.obj() },
		'b':  func(m *machine) error { return m.build() },
		'Q':  func(m *machine) error { return m.binPersID() },
		'P':  func(m *machine) error { return m.persID() },
	}
}

func (m *machine) proto() error {
	b, err := m.in.take(1)
	if err == nil && b[0] > 5 {
		err = m.fail("found protocol %d, want at most 5", b[0])
	}
	return err
}

// discard takes the top of the stack, which may be a mark.
func (m *machine) discard() error {
	if n := len(m.marks); n > 0 && m.marks[n-1] == len(m.stack) {
		m.marks = m.marks[:n-1]
		return nil
	}
	_, err := m.pop()
	return err
}

func (m *machine) dup() error {
	v, err := m.top()
	if err != nil {
		return err
	}
	return m.push(v)
}

func (m *machine) tuple(n int) error {
	items, err := m.popN(n)
	if err != nil {
		return err
	}
	m.spend(costBox + 16*int64(n))
	return m.push(&tuple{items})
}

func (m *machine) marked(make func([]any) any) error {
	items, err := m.popMark()
	if err != nil {
		return err
	}
	m.spend(costBox)
	return m.push(make(items))
}

func (m *machine) append(take func() ([]any, error)) error {
	items, err := take()
	if err != nil {
		return err
	}
	v, err := m.top()
	if err != nil {
		return err
	}
	m.spend(32 * int64(len(items)))
	switch x := v.(type) {
	case *list:
		x.items = append(x.items, items...)
	case *opaque:
		x.parts = append(x.parts, items...)
	default:
		return m.fail("found elements for %s, want a list", kind(v))
	}
	return nil
}

func (m *machine) dict() error {
	items, err := m.popMark()
	if err != nil {
		return err
	}
	d := &dict{}
	m.spend(2 * costBox)
	if err := m.fill(d, items); err != nil {
		return err
	}
	return m.push(d)
}

func (m *machine) setItems(take func() ([]any, error)) error {
	items, err := take()
	if err != nil {
		return err
	}
	v, err := m.top()
	if err != nil {
		return err
	}
	return m.fill(v, items)
}

func (m *machine) fill(v any, items []any) error {
	if len(items)%2 != 0 {
		return m.fail("found a key without a value")
	}
	if m.spend(costDict / 2 * int64(len(items))); m.over() {
		return m.tooMuch()
	}
	switch x := v.(type) {
	case *dict:
		for i := 0; i < len(items); i += 2 {
			key := items[i]
			if b, ok := key.([]byte); ok {
				key = string(b) // Python 2
			}
			x.set(key, items[i+1])
		}
	case *opaque:
		x.parts = append(x.parts, items...)
	default:
		return m.fail("found entries for %s, want a dict", kind(v))
	}
	return nil
}

func (m *machine) index(n int, do func(uint32) error) error {
	i, err := m.number(n)
	if err != nil {
		return err
	}
	return do(uint32(i))
}

func (m *machine) lineIndex(do func(uint32) error) error {
	s, err := m.in.line()
	if err != nil {
		return err
	}
	i, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return m.fail("found %q for a place in the memo", tensor.Clip(s))
	}
	return do(uint32(i))
}

func (m *machine) put(i uint32) error {
	v, err := m.top()
	if err != nil {
		return err
	}
	m.spend(costMemo)
	m.memo[i] = v
	return nil
}

func (m *machine) get(i uint32) error {
	v, ok := m.memo[i]
	if !ok {
		return m.fail("found nothing at place %d of the memo", i)
	}
	return m.push(v)
}

func (m *machine) global() error {
	module, err := m.in.line()
	if err != nil {
		return err
	}
	name, err := m.in.line()
	if err != nil {
		return err
	}
	return m.pushGlobal(module, name)
}

func (m *machine) stackGlobal() error {
	items, err := m.popN(2)
	if err != nil {
		return err
	}
	module, ok1 := items[0].(string)
	name, ok2 := items[1].(string)
	if !ok1 || !ok2 {
		return m.fail("found %s and %s for a Python name", kind(items[0]), kind(items[1]))
	}
	return m.pushGlobal(module, name)
}

func (m *machine) pushGlobal(module, name string) error {
	v, err := m.lookup(module, name)
	if err != nil {
		return err
	}
	return m.push(v)
}

// reduce does REDUCE and NEWOBJ (n is 2) and NEWOBJ_EX, which adds a dict (n is 3).
func (m *machine) reduce(n int) error {
	items, err := m.popN(n)
	if err != nil {
		return err
	}
	args, ok := items[1].(*tuple)
	if !ok {
		return m.fail("found %s for the arguments of a call, want a tuple", kind(items[1]))
	}
	all := args.items
	if n == 3 {
		all = append(append([]any(nil), all...), items[2])
	}
	v, err := m.call(items[0], all)
	if err != nil {
		return err
	}
	return m.push(v)
}

func (m *machine) inst() error {
	module, err := m.in.line()
	if err != nil {
		return err
	}
	name, err := m.in.line()
	if err != nil {
		return err
	}
	args, err := m.popMark()
	if err != nil {
		return err
	}
	f, err := m.lookup(module, name)
	if err != nil {
		return err
	}
	v, err := m.call(f, args)
	if err != nil {
		return err
	}
	return m.push(v)
}

func (m *machine) obj() error {
	items, err := m.popMark()
	if err != nil {
		return err
	}
	if len(items) == 0 {
		return m.fail("found an object of no class")
	}
	v, err := m.call(items[0], items[1:])
	if err != nil {
		return err
	}
	return m.push(v)
}

// build gives an object its state. For a dict that is attributes, such as the
// _metadata of a state dict; a tensor's are not needed either.
func (m *machine) build() error {
	state, err := m.pop()
	if err != nil {
		return err
	}
	v, err := m.top()
	if err != nil {
		return err
	}
	switch x := v.(type) {
	case *opaque:
		m.spend(32)
		x.parts = append(x.parts, state)
	case *dict, *list, *view:
	default:
		return m.fail("found a state for %s", kind(v))
	}
	return nil
}

func (m *machine) binPersID() error {
	id, err := m.pop()
	if err != nil {
		return err
	}
	v, err := m.persistent(id)
	if err != nil {
		return err
	}
	return m.push(v)
}

func (m *machine) persID() error {
	s, err := m.in.line()
	if err != nil {
		return err
	}
	return m.fail("found the persistent id %q, want a tuple", tensor.Clip(fmt.Sprint(s)))
}
