package coverage

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/slot"
)

// HotObject is an object that keeps workers busy.
type HotObject struct {
	// Controller is the name of the controller or queue.
	Controller string
	Kind       schema.GroupKind
	Object     types.NamespacedName
	Slot       slot.Slot
	// Workers is a lower bound for how many workers it keeps busy, on average over some minutes.
	Workers float64
}

// maxHottest is the size in bytes above which the last of the hottest objects are left out.
const maxHottest = 4 << 10

// encodeHottest writes a line for each object: kind, object, slot, thousandths of a worker, controller.
func encodeHottest(all []HotObject) string {
	var b strings.Builder
	for _, h := range all {
		line := fmt.Sprintf("%s %s %d %d %s\n", h.Kind, strconv.Quote(h.Object.String()), h.Slot, thousandths(h.Workers),
			strconv.Quote(h.Controller))
		if b.Len()+len(line) > maxHottest {
			break
		}
		b.WriteString(line)
	}
	return b.String()
}

func (r *Report) decodeHottest(text string) error {
	for i, line := range lines(text) {
		words, err := quotedFields(line)
		if err != nil || len(words) != 5 {
			return r.lineError(fieldHottest, i, line)
		}
		namespace, name, ok := strings.Cut(words[1], "/")
		s, slotErr := parseSlot(words[2])
		n, err := strconv.ParseUint(words[3], 10, 31)
		if !ok || slotErr != nil || err != nil {
			return r.lineError(fieldHottest, i, line)
		}
		r.Hottest = append(r.Hottest, HotObject{
			Kind: schema.ParseGroupKind(words[0]), Object: types.NamespacedName{Namespace: namespace, Name: name}, Slot: s,
			Workers: float64(n) / 1000, Controller: words[4],
		})
	}
	return nil
}
