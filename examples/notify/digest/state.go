package digest

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/rota-dev/rota/examples/notify/controller"
	"github.com/rota-dev/rota/examples/notify/notice"
)

// stateKey of the ConfigMap's data has the state.
const stateKey = "record"

// state is what is remembered of digests. A digest is in it before it is sent.
type state struct {
	// Day is the newest whose digest was made or passed over.
	Day string `json:"day"`
	// Digest is that of the day, and To are the destinations that are still to be told.
	Digest *notice.Digest `json:"digest,omitempty"`
	To     []string       `json:"to,omitempty"`
}

// day is midnight UTC of the state's day.
func (s state) day() (time.Time, error) { return time.Parse(time.DateOnly, s.Day) }

// store is the ConfigMap that holds the state.
type store struct {
	api                       corev1client.ConfigMapInterface
	namespace, name, notifier string
}

// stored is a state and the ConfigMap that it is in; nil: there is none.
type stored struct {
	state

	in *corev1.ConfigMap
}

func (s store) failed(what string, err error) error {
	return fmt.Errorf("%s configmap %s/%s, which remembers digests: %w", what, s.namespace, s.name, err)
}

func (s store) read(ctx context.Context) (stored, error) {
	cm, err := s.api.Get(ctx, s.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return stored{}, nil
	}
	if err != nil {
		return stored{}, s.failed("read", err)
	}
	out := stored{in: cm}
	err = json.Unmarshal([]byte(cm.Data[stateKey]), &out.state)
	if err == nil {
		_, err = out.day()
	}
	if err != nil {
		err = fmt.Errorf("it has no record: %w: delete it, and the next digest is the first", err)
		return stored{}, s.failed("read", err)
	}
	return out, nil
}

// write writes a state in place of the one that was read. It fails if somebody else wrote meanwhile.
func (s store) write(ctx context.Context, old stored, now state) (stored, error) {
	text, err := json.Marshal(now)
	if err != nil {
		return stored{}, s.failed("write", err)
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	if old.in != nil {
		cm = old.in.DeepCopy()
	}
	cm.Labels = map[string]string{controller.RecordsLabel: s.notifier}
	cm.Data = map[string]string{stateKey: string(text)}
	if old.in == nil {
		cm, err = s.api.Create(ctx, cm, metav1.CreateOptions{})
	} else {
		cm, err = s.api.Update(ctx, cm, metav1.UpdateOptions{})
	}
	if err != nil {
		return stored{}, s.failed("write", err)
	}
	return stored{state: now, in: cm}, nil
}
