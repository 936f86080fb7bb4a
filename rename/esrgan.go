package rename

import (
	"fmt"
	"sync"
)

// esrganStages numbers the layers of an RRDBNet saved as one Sequential; the
// last layers are those of the usual x1, x2 and x4 networks.
var esrganStages = []stage{{keys: sync.OnceValue(func() *keySet {
	k := &keySet{to: make(map[string]string)}
	k.put("model.0.", "conv_first.")
	const maxBlocks = 64
	for i := range maxBlocks {
		block := fmt.Sprintf("model.1.sub.%d.", i)
		for rdb := 1; rdb <= 3; rdb++ {
			for conv := 1; conv <= 5; conv++ {
				k.put(fmt.Sprintf("%sRDB%d.conv%d.0.", block, rdb, conv), fmt.Sprintf("body.%d.rdb%d.conv%d.", i, rdb, conv))
			}
		}
		k.put(block+"weight", "conv_body.weight")
		k.put(block+"bias", "conv_body.bias")
	}
	for _, p := range []pair{
		{"model.2.", "conv_hr."}, {"model.5.", "conv_hr."}, {"model.8.", "conv_hr."},
		{"model.3.", "conv_up1."}, {"model.6.", "conv_up2."},
		{"model.4.", "conv_last."}, {"model.7.", "conv_last."}, {"model.10.", "conv_last."},
	} {
		k.put(p.from, p.to)
	}
	return k
})}}
