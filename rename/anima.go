package rename

// ditAnima: the runtime keeps Anima's network under "net.", which some files
// leave out.
var ditAnima = stagesTable(stage{add: "net."})
