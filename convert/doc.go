// Package convert turns checkpoints into a planned output file: it opens the
// components, decodes scaled weights, puts prefixes before names, leaves out
// what nobody reads, renames, decides every tensor's type, finds its importance
// weights and lays the file out.
//
//	Open            any readable file, sharded set, split set or folder
//	OpenComponents  several of them, with scaled weights decoded
//	ParseRules      PATTERN=TYPE rules
//	Policy.Decide   the type of one tensor, and why
//	Plan            all of a conversion but the writing; Conversion.Write does that
//
// # Rules it keeps
//
// Everything is decided before the first byte is written, so that --dry-run
// shows what will happen and a refusal costs nothing. Tensor data flows in
// pieces of 64 Ki elements; a whole row is held only where a quantizer's blocks
// depend on it. Nothing is dropped, renamed over something else or stored in
// another type without being named in the Conversion.
//
// The order of tensors in the output is that of the inputs: component after
// component as Roles lists them, each in the order of its file's data.
package convert
