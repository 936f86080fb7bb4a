// Package chart draws an importance matrix: a heat map with one line for each
// entry, as PNG or as an HTML page with a table of the figures beside it.
//
// A line shows how an entry's importance is spread over its columns: the columns
// in order, gathered into Bins bins, each the mean of its columns divided by the
// mean of the entry, on a logarithmic scale. Bright streaks are the channels
// that a quantizer should spare.
package chart
