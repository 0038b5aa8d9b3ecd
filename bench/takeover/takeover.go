package takeover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/process"
	"github.com/rota-dev/rota/test/stage"
)

const (
	namespace = "takeover"
	members   = 3
	slots     = 256
	// quiet is how long there must be no reconciles before the next measurement.
	quiet = 2 * time.Second
	limit = 5 * time.Minute
)

// Options say what to measure.
type Options struct {
	// Objects is the number of Secrets, and of ConfigMaps.
	Objects int
	// Deliveries are measured one after the other.
	Deliveries []sharding.Mode
	// Traffic is how many of the Secrets, and of the ConfigMaps, are written per second.
	Traffic float64
	// Kubeconfig selects a running control plane; objects of earlier runs there are used again. "": start a new one.
	Kubeconfig string
	// Profile is the address at which the joiner serves profiles; "": nowhere.
	Profile string
	// Trace gets a line for each change that members report; nil: none.
	Trace io.Writer
	// Progress gets a line for each step of the run.
	Progress io.Writer
}

// Result is the measurement of one delivery. Times count from the kill or the start.
type Result struct {
	Delivery sharding.Mode
	// Join is the time from the start of a member's process until it works on its share and all slots are open.
	Join time.Duration
	// List is the time of consistent lists of both kinds by one client, one after the other.
	List time.Duration
	// Restart and Crash are the time from a member's SIGKILL to the first reconcile of its objects. RestartOpen and
	// CrashOpen are the time until all slots are open. After Restart the container starts again at once; after Crash
	// nothing comes back.
	Restart, RestartOpen, Crash, CrashOpen time.Duration
}

// Run runs the measurement. It takes minutes.
func Run(ctx context.Context, o Options) (_ []Result, err error) {
	if o.Kubeconfig == "" {
		plane, err := controlplane.Start(ctx, controlplane.Options{})
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, plane.Stop()) }()
		o.Kubeconfig = plane.Kubeconfig()
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	dir, err := os.MkdirTemp("", "rota-takeover-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if o.Trace != nil {
			_, _ = fmt.Fprintln(o.Trace, "logs of members are in "+dir)
			return
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	r := &runner{
		Options: o, dir: dir, run: strconv.FormatInt(time.Now().Unix(), 36), client: kubernetes.NewForConfigOrDie(cfg),
	}
	r.say("making %d Secrets and %d ConfigMaps", o.Objects, o.Objects)
	if err := r.fill(ctx); err != nil {
		return nil, err
	}
	var out []Result
	for _, kind := range o.Deliveries {
		result, err := r.measure(ctx, kind)
		if err != nil {
			return out, fmt.Errorf("%s: %w", kind, err)
		}
		out = append(out, result)
	}
	return out, nil
}

type runner struct {
	Options
	client *kubernetes.Clientset
	dir    string
	run    string
}

func (r *runner) say(format string, args ...any) {
	at := time.Now().Format(time.TimeOnly)
	_, _ = fmt.Fprintf(r.Progress, "%s  %s\n", at, fmt.Sprintf(format, args...)) // only progress
}

// fill creates the objects, with the labels that SlotLabel selects by.
func (r *runner) fill(ctx context.Context) error {
	_, err := r.client.CoreV1().ConfigMaps(namespace).Get(ctx, objectName(r.Objects-1), metav1.GetOptions{})
	if err == nil {
		return nil // an earlier run has created them
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	_, err = r.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	data := make([]byte, 300)
	about := func(i int, kind string) metav1.ObjectMeta {
		label := sharding.HashLabel(slot.KeyName, schema.GroupKind{Kind: kind})
		value := sharding.LabelValue(slot.KeyName.Hash(namespace, objectName(i), ""))
		return metav1.ObjectMeta{Namespace: namespace, Name: objectName(i), Labels: map[string]string{label: value}}
	}
	return stage.Parallel(ctx, 0, r.Objects, func(i int) error {
		secret := &corev1.Secret{ObjectMeta: about(i, "Secret"), Data: map[string][]byte{"data": data}}
		_, err := r.client.CoreV1().Secrets(namespace).Create(ctx, secret, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		config := &corev1.ConfigMap{ObjectMeta: about(i, "ConfigMap"), BinaryData: map[string][]byte{"data": data}}
		_, err = r.client.CoreV1().ConfigMaps(namespace).Create(ctx, config, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil
	})
}

func objectName(i int) string { return fmt.Sprintf("object-%06d", i) }

// traffic changes objects until ctx ends.
func (r *runner) traffic(ctx context.Context) {
	if r.Traffic <= 0 {
		return
	}
	for i := 0; await.Sleep(ctx, time.Duration(float64(time.Second)/r.Traffic)) == nil; i++ {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"n":"%d"}}}`, time.Now().UnixNano())
		name := objectName(i * 7919 % r.Objects)
		const merge = "application/merge-patch+json"
		_, _ = r.client.CoreV1().Secrets(namespace).Patch(ctx, name, merge, patch, metav1.PatchOptions{})
		_, _ = r.client.CoreV1().ConfigMaps(namespace).Patch(ctx, name, merge, patch, metav1.PatchOptions{})
	}
}

// measure starts the members. Then one more joins, crashes and comes back, and crashes for good.
func (r *runner) measure(ctx context.Context, kind sharding.Mode) (out Result, err error) {
	out.Delivery = kind
	ctx, cancel := context.WithTimeoutCause(ctx, 4*limit, errors.New("not done in time"))
	defer cancel()
	var running []*replica
	defer func() {
		for _, m := range running {
			m.process.Kill()
		}
		if err != nil {
			for _, m := range running {
				err = fmt.Errorf("%w\n%s: %s", err, m.pod, m.process.Tail())
			}
		}
	}()
	start := func(pod, profile string) error {
		m, err := r.start(pod, kind, profile)
		if err == nil {
			running = append(running, m)
		}
		return err
	}
	r.say("%s: %d members start", kind, members)
	for i := range members {
		if err := start(fmt.Sprintf("%s-%d", r.pod(kind), i), ""); err != nil {
			return out, err
		}
	}
	if err := r.rest(ctx, running); err != nil {
		return out, err
	}
	begun := time.Now()
	if err := r.list(ctx); err != nil {
		return out, err
	}
	out.List = time.Since(begun)
	busy, still := context.WithCancel(ctx)
	defer still()
	go r.traffic(busy)

	begun = time.Now()
	if err := start(r.pod(kind)+"-last", r.Profile); err != nil {
		return out, err
	}
	joiner := running[members]
	for !joiner.now().Settled || !settled(running) {
		if err := r.pause(ctx, running); err != nil {
			return out, err
		}
	}
	out.Join = time.Since(begun)
	r.say("%s: a member more joined in %v", kind, out.Join.Round(time.Millisecond))
	if err := r.rest(ctx, running); err != nil {
		return out, err
	}

	killed := time.Now()
	joiner.process.Kill()
	running = running[:members]
	if err := start(r.pod(kind)+"-last", ""); err != nil { // the same Pod, and the same container
		return out, err
	}
	if out.Restart, out.RestartOpen, err = r.after(ctx, killed, running); err != nil {
		return out, err
	}
	r.say("%s: a container restarted: first reconcile after %v, all open after %v", kind, out.Restart, out.RestartOpen)
	if err := r.rest(ctx, running); err != nil {
		return out, err
	}

	killed = time.Now()
	running[members].process.Kill()
	running = running[:members]
	if out.Crash, out.CrashOpen, err = r.after(ctx, killed, running); err != nil {
		return out, err
	}
	r.say("%s: a member crashed: first reconcile after %v, all open after %v", kind, out.Crash, out.CrashOpen)
	return out, nil
}

// pod is the prefix of the names of a rota's pods, and the rota's name. Each run on a control plane has its own.
func (r *runner) pod(kind sharding.Mode) string { return pods[kind] + "-" + r.run }

var pods = map[sharding.Mode]string{
	sharding.Filter: "filter", sharding.SlotLabel: "label", sharding.ShardSelector: "selector",
}

// after waits until all slots that were open before are open again. It returns when the number of open slots first rose
// and when all were open, counted from a time.
func (r *runner) after(ctx context.Context, from time.Time, running []*replica) (first, all time.Duration, err error) {
	// The members that continue have their slots open. The other slots are the dead member's.
	begin := open(running)
	for {
		now := open(running)
		switch {
		case now < begin:
			begin = now
		case first == 0 && now > begin:
			first = time.Since(from)
		}
		if now == slots {
			return first.Round(time.Millisecond), time.Since(from).Round(time.Millisecond), nil
		}
		if err := r.pause(ctx, running); err != nil {
			return 0, 0, err
		}
	}
}

func open(running []*replica) (n int) {
	for _, m := range running {
		n += m.now().Open
	}
	return n
}

func settled(running []*replica) bool {
	for _, m := range running {
		if !m.now().Settled {
			return false
		}
	}
	return open(running) == slots
}

// rest waits until all slots are assigned and nothing has been reconciled for a while.
func (r *runner) rest(ctx context.Context, running []*replica) error {
	last, since := int64(-1), time.Now()
	for time.Since(since) < quiet {
		sum := int64(0)
		for _, m := range running {
			sum += m.now().Reconciles
		}
		if !settled(running) || sum-last > int64(20+4*r.Traffic*quiet.Seconds()) || last < 0 {
			last, since = sum, time.Now()
		}
		if err := r.pause(ctx, running); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) pause(ctx context.Context, running []*replica) error {
	for _, m := range running {
		if err := m.process.Failure(); err != nil {
			return err
		}
	}
	if await.Sleep(ctx, reportEvery) != nil {
		return context.Cause(ctx)
	}
	return nil
}

// list lists both kinds, page by page, as one client that keeps nothing.
func (r *runner) list(ctx context.Context) error {
	secrets, configs := r.client.CoreV1().Secrets(""), r.client.CoreV1().ConfigMaps("")
	for _, list := range []func(context.Context, metav1.ListOptions) (metav1.ListInterface, error){
		func(ctx context.Context, o metav1.ListOptions) (metav1.ListInterface, error) {
			return secrets.List(ctx, o)
		},
		func(ctx context.Context, o metav1.ListOptions) (metav1.ListInterface, error) {
			return configs.List(ctx, o)
		},
	} {
		o := metav1.ListOptions{Limit: 1000}
		for first := true; first || o.Continue != ""; first = false {
			page, err := list(ctx, o)
			if err != nil {
				return err
			}
			o.Continue = page.GetContinue()
		}
	}
	return nil
}

// replica is a member's process.
type replica struct {
	pod     string
	process *process.Process

	mu   sync.Mutex
	last report
}

func (m *replica) now() report {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

func (r *runner) start(pod string, kind sharding.Mode, profile string) (*replica, error) {
	command, err := process.Command(nil)
	if err != nil {
		return nil, err
	}
	m := &replica{pod: pod}
	m.process, err = process.Start(process.Options{
		Name: pod, Command: command, Log: filepath.Join(r.dir, pod+".log"),
		Variable: EnvMember,
		Config: memberConfig{
			Kubeconfig: r.Kubeconfig, Name: r.pod(kind), Delivery: kind, Profile: profile, Debug: r.Trace != nil,
		},
		Env: []string{"POD_NAME=" + pod, "POD_UID=uid-" + pod, "CONTAINER_NAME=manager", "POD_NAMESPACE=" + namespace},
		Line: func(line string) {
			var now report
			if json.Unmarshal([]byte(line), &now) != nil {
				return
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			was, is := m.last, now
			m.last = now
			was.At, was.Reconciles, is.At, is.Reconciles = time.Time{}, 0, time.Time{}, 0
			if r.Trace != nil && was != is {
				_, _ = fmt.Fprintf(r.Trace, "%s %s owned %d coming %d going %d open %d, %d reconciles\n",
					now.At.Format("15:04:05.000"), pod, now.Owned, now.Coming, now.Going, now.Open, now.Reconciles)
			}
		},
	})
	return m, err
}
