// Package nn has the layers that diffusion models are built of, each a function
// of a graph.Builder whose scope is the layer's own module path. Widths come
// from the weights, so a layer needs to be told only what shapes cannot tell.
//
// Layouts: token sequences are [n, tokens, width], images [n, channels, height,
// width]. Order of operations and epsilons are stable-diffusion.cpp's, because
// statistics and pictures are compared with its.
package nn
