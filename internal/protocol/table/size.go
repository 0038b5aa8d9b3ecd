package table

// MaxSize is the largest size of a table's text, in bytes. It is the limit of a ConfigMap.
const MaxSize = 1 << 20

// NotesSize returns the size of the notes in the table's text, in bytes.
func (t *Table) NotesSize() int {
	size := 0
	for _, note := range t.Notes {
		size += 32 + note.Versions.Size()
		if note.Wait > 0 {
			size += len(" wait=1234567")
		}
	}
	return size
}

// Size returns the size of the versions in a note's text, in bytes.
func (v Versions) Size() int {
	size := 0
	for kind, version := range v {
		size += len(kind) + len(version) + 2
	}
	return size
}

// Size returns the size of the table's text, in bytes. Far below limit it may return an estimate that is too high,
// since encoding every version would take long.
func (t *Table) Size(limit int) int {
	size := 256 + t.NotesSize() + GoneSize(t.Gone) + t.orderSize()
	for i := range t.Members {
		m := &t.Members[i]
		size += len(m.ID) + len(m.Pod) + 2*len(m.PodUID) + len(m.Container) + len(m.Build) + 96
	}
	for _, name := range t.Duties {
		size += len(name) + 16
	}
	size += t.ableSize()
	for i := range t.Runs {
		size += len(t.Runs[i].Owner) + len(t.Runs[i].Next) + 64
	}
	for _, e := range t.Expels {
		size += len(e.Pod) + 24
	}
	if size < limit/2 {
		return size
	}
	size = 0
	for field, text := range Encode(t) {
		size += len(field) + len(text)
	}
	return size
}
