package neighbor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/judge"
	"github.com/rota-dev/rota/test/process"
	"github.com/rota-dev/rota/test/stage"
)

const (
	replicas     = 3
	quietObjects = 20
	floodObjects = 200
	startLimit   = 2 * time.Minute
)

// Options say what to measure.
type Options struct {
	// Rounds is how often each form is measured.
	Rounds int `json:"rounds"`
	// Alone is how long the quiet controller is measured alone, Flood how long beside the flooded one.
	Alone time.Duration `json:"alone"`
	Flood time.Duration `json:"flood"`
	// Changes and FloodChanges are how many changes per second there are to objects of the two controllers. A replica has
	// one processor, and a change of the flood takes some 10 ms of it times Effort, twice: the answer is a change, too.
	Changes      float64 `json:"changes"`
	FloodChanges float64 `json:"flood_changes"`
	Effort       int     `json:"effort"`
	// Apart gives the replica whose controller is flooded a processor of its own, as on a machine of its own. It needs two
	// processors, and taskset of Linux.
	Apart bool `json:"apart"`
	// Output is a path without extension: .json gets the results, .md the table.
	Output string `json:"-"`
	// Command starts a replica: a program that calls OperatorMain, and its arguments.
	Command []string `json:"-"`
	// Progress gets a line for each step.
	Progress io.Writer `json:"-"`
}

func (o *Options) validate() error {
	switch {
	case o.Rounds < 1:
		return errors.New("rounds: must be at least 1")
	case o.Alone <= 0 || o.Flood <= 0:
		return errors.New("alone and flood: must be above 0")
	case o.Changes <= 0 || o.FloodChanges <= 0:
		return errors.New("changes and flood-changes: must be above 0")
	case o.Effort < 1:
		return errors.New("flood-effort: must be at least 1")
	case o.Output == "":
		return errors.New("output: name the files to write")
	case len(o.Command) == 0:
		return errors.New("command: name the program of the replicas")
	}
	return nil
}

// Report holds the measurements.
type Report struct {
	Options Options  `json:"options"`
	Results []Result `json:"results"`
}

// Result is one form in one round. The times are from a change to the write that answers it, as a watch shows it, in
// milliseconds.
type Result struct {
	Form  Form  `json:"form"`
	Round int   `json:"round"`
	Alone Times `json:"alone_ms"`
	Flood Times `json:"flood_ms"`
	// FloodAnswers is how many changes of the flood were answered per second.
	FloodAnswers float64 `json:"flood_answers"`
}

// Times are quantiles.
type Times struct {
	Changes int     `json:"changes"`
	P50     float64 `json:"p50"`
	P99     float64 `json:"p99"`
	// Open are changes that were not answered within 10 s after the end. They count as having taken until then.
	Open int `json:"open"`
}

// Run measures. It writes the files after each round.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	r := &Report{Options: o}
	for round := range o.Rounds {
		forms := []Form{Leader, Duties}
		if round%2 == 1 {
			slices.Reverse(forms)
		}
		for _, form := range forms {
			result, err := measure(ctx, &o, form)
			if err != nil {
				return nil, fmt.Errorf("%s, round %d: %w", form, round+1, err)
			}
			result.Round = round + 1
			_, _ = fmt.Fprintf(o.Progress, "%s, round %d: alone p50 %.0f ms, p99 %.0f ms; beside a flood %.0f, %.0f\n", form,
				round+1, result.Alone.P50, result.Alone.P99, result.Flood.P50, result.Flood.P99)
			r.Results = append(r.Results, *result)
		}
		if err := r.save(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *Report) save() error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(r.Options.Output+".json", append(text, '\n'), 0o644),
		os.WriteFile(r.Options.Output+".md", []byte(r.Markdown()), 0o644))
}

// Markdown is a table with a line for each measurement.
func (r *Report) Markdown() string {
	var b strings.Builder
	b.WriteString("| runs as | round | alone p50 ms | p99 | beside a flood p50 ms | p99 | times p99 alone | " +
		"answers to the flood a second |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, x := range r.Results {
		fmt.Fprintf(&b, "| %s | %d | %.0f | %.0f | %.0f | %.0f | %.2f | %.0f |\n", x.Form, x.Round, x.Alone.P50, x.Alone.P99,
			x.Flood.P50, x.Flood.P99, x.Flood.P99/x.Alone.P99, x.FloodAnswers)
	}
	return b.String()
}

// measure runs a form on a control plane of its own.
func measure(ctx context.Context, o *Options, form Form) (_ *Result, err error) {
	dir, err := os.MkdirTemp("", "rota-neighbor-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	c, err := stage.Open(ctx, stage.Options{Name: rotaNamespace, Dir: dir, ControlPlane: controlplane.Options{
		Env: []string{stage.FewCollections},
	}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	config := rest.CopyConfig(c.Config)
	config.QPS = -1 // the load has no limit
	kube, err := client.NewWithWatch(config, client.Options{Scheme: stage.Scheme()})
	if err != nil {
		return nil, err
	}
	desk := &desk{client: kube, at: map[question]time.Time{}}
	if err := desk.prepare(ctx); err != nil {
		return nil, err
	}
	background, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	if err := desk.watch(background, &group); err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(dir, "operator.kubeconfig")
	if err := c.Plane.WriteUserKubeconfig(kubeconfig, operatorName, "system:masters"); err != nil {
		return nil, err
	}
	var running []*process.Process
	defer func() {
		for _, p := range running {
			_ = p.End(syscall.SIGTERM)
		}
		for _, p := range running {
			select {
			case <-p.Done():
			case <-time.After(stopLimit):
			}
			p.Kill()
		}
	}()
	for i := range replicas {
		pod := fmt.Sprintf("%s-%d", operatorName, i)
		p, err := process.Start(process.Options{
			Name: pod, Command: o.Command, Log: filepath.Join(dir, pod+".log"), Variable: EnvOperator,
			Answers: true, Config: operatorConfig{Kubeconfig: kubeconfig, Form: form, Effort: o.Effort},
			Env: []string{"POD_NAME=" + pod, "POD_UID=", "CONTAINER_NAME=", "POD_NAMESPACE=" + rotaNamespace,
				"GOMAXPROCS=1"},
		})
		if err != nil {
			return nil, err
		}
		running = append(running, p)
	}
	err = await.Until(ctx, 200*time.Millisecond, startLimit, func() string {
		for _, p := range running {
			if err := p.Failure(); err != nil {
				return err.Error()
			}
		}
		return desk.working(ctx)
	})
	if err != nil {
		return nil, fmt.Errorf("the controllers do not work: %w", err)
	}
	if err := await.Sleep(ctx, settleTime); err != nil {
		return nil, err
	}
	if o.Apart {
		servers := slices.Collect(maps.Values(c.Plane.PIDs()))
		if err := apart(ctx, running, servers, func(ctx context.Context) { desk.flood(ctx, o.FloodChanges) }); err != nil {
			return nil, err
		}
		if err := await.Sleep(ctx, settleTime); err != nil {
			return nil, err
		}
	}
	result := &Result{Form: form}
	if result.Alone, err = desk.measure(ctx, o.Changes, o.Alone); err != nil {
		return nil, err
	}
	flood, end := context.WithCancel(ctx)
	group.Go(func() { desk.flood(flood, o.FloodChanges) })
	defer end()
	if err := await.Sleep(ctx, settleTime); err != nil {
		return nil, err
	}
	before, begun := desk.answers(), time.Now()
	if result.Flood, err = desk.measure(ctx, o.Changes, o.Flood); err != nil {
		return nil, err
	}
	result.FloodAnswers = float64(desk.answers()-before) / time.Since(begun).Seconds()
	for _, p := range running {
		if err := p.Failure(); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// stopLimit is how long a replica may take to end.
const stopLimit = 30 * time.Second

// question is what is wanted of a Secret.
type question struct {
	name   string
	number int
}

// desk changes objects, and notes when they are answered.
type desk struct {
	client client.WithWatch

	mu       sync.Mutex
	number   int
	at       map[question]time.Time // when each was asked
	took     []time.Duration
	answered int // of the flood
}

func (d *desk) prepare(ctx context.Context) error {
	for _, name := range []string{quietNamespace, floodNamespace} {
		if err := d.client.Create(ctx, stage.Namespace(name)); err != nil {
			return err
		}
	}
	for i := range quietObjects {
		if err := d.client.Create(ctx, &corev1.Secret{ObjectMeta: meta(quietNamespace, i)}); err != nil {
			return err
		}
	}
	for i := range floodObjects {
		if err := d.client.Create(ctx, &corev1.ConfigMap{ObjectMeta: meta(floodNamespace, i)}); err != nil {
			return err
		}
	}
	return nil
}

func meta(namespace string, i int) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: "object-" + strconv.Itoa(i)}
}

// watch notes answers until ctx ends.
func (d *desk) watch(ctx context.Context, group *sync.WaitGroup) error {
	for _, list := range []client.ObjectList{&corev1.SecretList{}, &corev1.ConfigMapList{}} {
		namespace := quietNamespace
		if _, flood := list.(*corev1.ConfigMapList); flood {
			namespace = floodNamespace
		}
		w, err := d.client.Watch(ctx, list, client.InNamespace(namespace))
		if err != nil {
			return err
		}
		group.Go(func() {
			for e := range w.ResultChan() {
				if obj, ok := e.Object.(client.Object); ok {
					d.saw(obj, time.Now())
				}
			}
		})
		context.AfterFunc(ctx, w.Stop)
	}
	return nil
}

func (d *desk) saw(obj client.Object, now time.Time) {
	done := obj.GetAnnotations()[doneAnnotation]
	if done == "" {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if obj.GetNamespace() == floodNamespace {
		if done == obj.GetAnnotations()[wantedAnnotation] {
			d.answered++
		}
		return
	}
	number, err := strconv.Atoi(done)
	for k, at := range d.at {
		if err == nil && k.name == obj.GetName() && k.number <= number { // a later answer is one to what was asked before
			d.took = append(d.took, now.Sub(at))
			delete(d.at, k)
		}
	}
}

func (d *desk) answers() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.answered
}

// ask wants something of an object.
func (d *desk) ask(ctx context.Context, obj client.Object, note bool) error {
	d.mu.Lock()
	d.number++
	want := strconv.Itoa(d.number)
	if note {
		d.at[question{obj.GetName(), d.number}] = time.Now()
	}
	d.mu.Unlock()
	patch := client.RawPatch("application/merge-patch+json",
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, wantedAnnotation, want))
	return d.client.Patch(ctx, obj, patch)
}

// working says what the controllers have not answered yet.
func (d *desk) working(ctx context.Context) string {
	for _, obj := range []client.Object{
		&corev1.Secret{ObjectMeta: meta(quietNamespace, 0)}, &corev1.ConfigMap{ObjectMeta: meta(floodNamespace, 0)},
	} {
		if obj.GetAnnotations()[wantedAnnotation] == "" {
			if err := d.client.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
				return err.Error()
			}
		}
		want := obj.GetAnnotations()[wantedAnnotation]
		if want == "" {
			if err := d.ask(ctx, obj, false); err != nil {
				return err.Error()
			}
		}
		if want == "" || obj.GetAnnotations()[doneAnnotation] != want {
			return fmt.Sprintf("%s %s is not answered", obj.GetNamespace(), obj.GetName())
		}
	}
	return ""
}

// measure changes quiet objects in turn, and returns how long the answers took.
func (d *desk) measure(ctx context.Context, rate float64, length time.Duration) (Times, error) {
	d.mu.Lock()
	d.took, d.at = nil, map[question]time.Time{}
	d.mu.Unlock()
	tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer tick.Stop()
	end := time.After(length)
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return Times{}, ctx.Err()
		case <-end:
			return d.times(ctx)
		case <-tick.C:
		}
		if err := d.ask(ctx, &corev1.Secret{ObjectMeta: meta(quietNamespace, i%quietObjects)}, true); err != nil {
			return Times{}, err
		}
	}
}

// patience is how long the last answers may take.
const patience = 10 * time.Second

func (d *desk) times(ctx context.Context) (Times, error) {
	open := func() int {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.at)
	}
	_ = await.Until(ctx, 20*time.Millisecond, patience, func() string {
		if open() > 0 {
			return "open"
		}
		return ""
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	took := slices.Clone(d.took)
	for _, at := range d.at {
		took = append(took, time.Since(at))
	}
	slices.Sort(took)
	ms := func(q float64) float64 { return float64(judge.Quantile(took, q)) / float64(time.Millisecond) }
	return Times{Changes: len(took), P50: ms(0.5), P99: ms(0.99), Open: len(d.at)}, ctx.Err()
}

// flood changes the other objects until ctx ends.
func (d *desk) flood(ctx context.Context, rate float64) {
	tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		_ = d.ask(ctx, &corev1.ConfigMap{ObjectMeta: meta(floodNamespace, i%floodObjects)}, false) // the next one follows
	}
}
