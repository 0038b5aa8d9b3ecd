package rig

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/judge"
	"github.com/rota-dev/rota/test/rig/process"
	"github.com/rota-dev/rota/test/rig/proxy"
)

// restartAfter is how long a kubelet's stand-in takes to start a container again.
const restartAfter = 500 * time.Millisecond

// stopLimit is how long a replica may take to answer, and to get to a place where it stops itself.
const stopLimit = 20 * time.Second

// Replica is a Pod of the operator: one process, or several in turn where its fleet restarts them. Its methods may be
// called concurrently.
type Replica struct {
	// Pod is the replica's name, and Number its number in the fleet, from 1. Operator is its configuration, without the
	// journal.
	Pod      string
	Number   int
	Operator Operator
	// Proxy is its way to the API server; nil if it has none of its own.
	Proxy *proxy.Proxy
	// MayEnd is true while its process may end on its own.
	MayEnd atomic.Bool

	fleet   *Fleet
	command []string
	env     []string
	kubelet sync.WaitGroup

	mu     sync.Mutex
	lives  []*life
	over   bool // it is not started again
	pauses []judge.Pause
}

// life is one process of a Pod.
type life struct {
	*process.Process
	name    string
	reading sync.Mutex
	journal *journal.Reader
}

// Identity is how a replica reaches the API server.
type Identity struct {
	// Config has the address and the credentials.
	Config *rest.Config
	// UID is that of the Pod object; "" if there is none.
	UID string
	// Proxy stands between the replica and the API server; nil if nothing does.
	Proxy *proxy.Proxy
}

// Through puts a proxy with that seed before API servers. The replica has a token, which passes the proxy.
func Through(seed uint64, token string, servers ...*rest.Config) (Identity, error) {
	p, err := proxy.New(seed, servers...)
	if err != nil {
		return Identity{}, err
	}
	cfg := &rest.Config{Host: p.Host(), BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: p.CA()}}
	return Identity{Config: cfg, Proxy: p}, nil
}

// start starts the next process of the Pod.
func (r *Replica) start() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return nil
	}
	name := r.Pod
	if r.fleet.Restart {
		name = fmt.Sprintf("%s.%d", r.Pod, len(r.lives)+1)
	}
	o := r.Operator
	o.Journal, o.Traffic = filepath.Join(r.fleet.Dir, name+".journal"), filepath.Join(r.fleet.Dir, name+".traffic")
	variable, config := EnvOperator, any(o)
	if replace := r.fleet.Config; replace != nil {
		variable, config = replace(r, &o)
	}
	p, err := process.Start(process.Options{
		Name: "replica " + name, Command: r.command, Env: r.env, Log: filepath.Join(r.fleet.Dir, name+".log"),
		Answers: true, Variable: variable, Config: config,
	})
	if err != nil {
		return err
	}
	l := &life{Process: p, name: name, journal: journal.NewReader(o.Journal, name)}
	r.lives = append(r.lives, l)
	if r.fleet.Restart {
		r.kubelet.Go(func() {
			<-l.Done()
			time.Sleep(restartAfter)
			if err := r.start(); err != nil {
				panic(err) // the run cannot go on
			}
		})
	}
	return nil
}

// now returns the process that runs, or ran last.
func (r *Replica) now() *life {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lives[len(r.lives)-1]
}

func (r *Replica) all() []*life {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lives)
}

// Process is the process that runs, or ran last.
func (r *Replica) Process() *process.Process { return r.now().Process }

// Live is true until the replica was told to end, or ended without being started again.
func (r *Replica) Live() bool {
	r.mu.Lock()
	over := r.over
	r.mu.Unlock()
	return !over && (r.fleet.Restart || r.now().Running())
}

// Lingers says that it was told to end and has not, or returns "".
func (r *Replica) Lingers() string {
	if r.Live() {
		return ""
	}
	return r.now().Lingers()
}

// Crash ends the process at once (SIGKILL). Where the fleet restarts processes, the next one follows.
func (r *Replica) Crash() error { return r.now().End(syscall.SIGKILL) }

// Kill ends the process at once (SIGKILL), and the Pod with it, as a failing node does.
func (r *Replica) Kill() error {
	r.end()
	return r.Crash()
}

// Leave ends the process with SIGTERM, and the Pod with it.
func (r *Replica) Leave() error {
	r.end()
	return r.now().End(syscall.SIGTERM)
}

// end ends restarts.
func (r *Replica) end() {
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
}

// remove ends whatever is left.
func (r *Replica) remove() {
	r.end()
	for _, l := range r.all() {
		l.Kill()
	}
	r.kubelet.Wait()
	if r.Proxy != nil {
		r.Proxy.Close()
	}
}

// Pause has the process stop itself (SIGSTOP) at a place, once it works on the Website or duty of that name, and
// continues it when wait returns, which gets the time at which it stopped.
func (r *Replica) Pause(ctx context.Context, place, name string, wait func(at time.Duration) error) error {
	l := r.now()
	at, err := l.number(ctx, "stop "+place+" "+name, "stopping")
	if err != nil {
		return err
	}
	err = wait(time.Duration(at))
	pause := judge.Pause{Process: l.name, From: time.Duration(at), To: journal.Now()}
	r.mu.Lock()
	r.pauses = append(r.pauses, pause)
	r.mu.Unlock()
	if more := l.Signal(syscall.SIGCONT); err == nil {
		err = more
	}
	return err
}

// PauseFor is Pause for a time.
func (r *Replica) PauseFor(ctx context.Context, place, name string, d time.Duration) error {
	return r.Pause(ctx, place, name, func(at time.Duration) error { return await.Sleep(ctx, at+d-journal.Now()) })
}

// Goroutines returns how many the process has.
func (r *Replica) Goroutines(ctx context.Context) (int, error) {
	return r.now().number(ctx, "status", "status")
}

// number says a line to the process, and returns the number after the word in its answer.
func (l *life) number(ctx context.Context, line, word string) (int, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, stopLimit, fmt.Errorf("it took more than %v", stopLimit))
	defer cancel()
	answer, err := l.Ask(ctx, line, word)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(answer)
}

// Reconciles returns those in the journals of the replica's processes, in order.
func (r *Replica) Reconciles() (out []journal.Reconcile, err error) {
	for _, l := range r.all() {
		l.reading.Lock()
		list, err := l.journal.Read()
		out = append(out, list...) // a copy: the list is valid until the next read
		l.reading.Unlock()
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// WriteKubeconfig writes a kubeconfig with the address and the credentials of a configuration.
func WriteKubeconfig(path string, from *rest.Config) error {
	const name = "rig"
	k := api.NewConfig()
	k.Clusters[name] = &api.Cluster{
		Server: from.Host, CertificateAuthority: from.CAFile, CertificateAuthorityData: from.CAData,
		InsecureSkipTLSVerify: from.Insecure, TLSServerName: from.ServerName,
	}
	k.AuthInfos[name] = &api.AuthInfo{
		ClientCertificate: from.CertFile, ClientCertificateData: from.CertData,
		ClientKey: from.KeyFile, ClientKeyData: from.KeyData,
		Token: from.BearerToken, TokenFile: from.BearerTokenFile, Username: from.Username, Password: from.Password,
		Exec: from.ExecProvider, AuthProvider: from.AuthProvider,
		Impersonate: from.Impersonate.UserName, ImpersonateGroups: from.Impersonate.Groups,
	}
	k.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	k.CurrentContext = name
	if err := clientcmd.WriteToFile(*k, path); err != nil {
		return fmt.Errorf("write a kubeconfig: %w", err)
	}
	return nil
}
