package rename

import "fmt"

// photoMaker is the identity encoder of PhotoMaker v1 and v2, whose Sequential
// layers the runtime numbers by meaning.
var photoMaker = photoMakerNames()

func photoMakerNames() pairs {
	p := pairs{{"pmid.vision_model.visual_projection.weight", "pmid.visual_projection.weight"}}
	for i := range 4 {
		layer := fmt.Sprintf("pmid.qformer_perceiver.perceiver_resampler.layers.%d.1.", i)
		p = append(p,
			pair{layer + "1.weight", layer + "1.fc1.weight"},
			pair{layer + "3.weight", layer + "1.fc2.weight"})
	}
	for _, kind := range []string{"weight", "bias"} {
		p = append(p,
			pair{"pmid.qformer_perceiver.token_proj.0." + kind, "pmid.qformer_perceiver.token_proj.fc1." + kind},
			pair{"pmid.qformer_perceiver.token_proj.2." + kind, "pmid.qformer_perceiver.token_proj.fc2." + kind})
	}
	return p
}
