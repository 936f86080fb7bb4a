//go:build !amd64 || noasm

package kernel

type calls struct{}

func available(int) *Set { return nil }
