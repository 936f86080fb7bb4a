package scaled

import "fmt"

// SchemeError reports a weight whose scales do not make sense together.
type SchemeError struct {
	Tensor string // the weight, or the companion if there is no weight
	Msg    string // what was found, and what was expected
}

func (e *SchemeError) Error() string {
	return fmt.Sprintf("decode scaled weight %q: %s", e.Tensor, e.Msg)
}
