package chaos

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/oracle"
	"github.com/rota-dev/rota/test/rig/process"
	"github.com/rota-dev/rota/test/rig/proxy"
)

// restartAfter is how long it takes until a container is restarted, in place of a kubelet.
const restartAfter = 500 * time.Millisecond

// member is a Pod of the operator: a proxy, and a process that is restarted until the Pod ends.
type member struct {
	pod     string
	proxy   *proxy.Proxy
	command []string
	dir     string
	config  operatorConfig

	mu      sync.Mutex
	life    *life // the last one
	lives   []*life
	over    bool // it is not restarted
	pauses  []oracle.Pause
	kubelet sync.WaitGroup
}

// life is one process of a Pod.
type life struct {
	*process.Process
	name    string
	journal *journal.Reader
}

// processName is the name of the process with that journal: POD.NUMBER.
func processName(path string) string { return strings.TrimSuffix(filepath.Base(path), ".journal") }

// podOfProcess is the inverse of it.
func podOfProcess(name string) string {
	pod, _, _ := strings.Cut(name, ".")
	return pod
}

// start starts the next process of the Pod.
func (m *member) start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over {
		return nil
	}
	name := fmt.Sprintf("%s.%d", m.pod, len(m.lives)+1)
	c := m.config
	c.Journal = filepath.Join(m.dir, name+".journal")
	p, err := process.Start(process.Options{
		Name: "member " + name, Command: m.command, Log: filepath.Join(m.dir, name+".log"), Answers: true,
		Variable: EnvOperator, Config: c,
	})
	if err != nil {
		return err
	}
	l := &life{Process: p, name: name, journal: journal.NewReader(c.Journal, name)}
	m.life, m.lives = l, append(m.lives, l)
	m.kubelet.Go(func() {
		<-l.Done()
		time.Sleep(restartAfter)
		if err := m.start(); err != nil {
			panic(err) // the campaign cannot go on
		}
	})
	return nil
}

// now returns the process that runs, or ran last.
func (m *member) now() *life {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.life
}

// all returns the processes so far.
func (m *member) all() []*life {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.lives)
}

// kill ends the process at once. Another one is started in the Pod.
func (m *member) kill() error { return m.now().End(syscall.SIGKILL) }

// lose ends the process and its Pod at once, as if the node failed.
func (m *member) lose() error {
	m.end()
	return m.kill()
}

// end ends restarts of the Pod's process.
func (m *member) end() {
	m.mu.Lock()
	m.over = true
	m.mu.Unlock()
}

// ended says whether end was called.
func (m *member) ended() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.over
}

// leave ends the process with SIGTERM, and its Pod.
func (m *member) leave() error {
	m.end()
	return m.now().End(syscall.SIGTERM)
}

// remove ends whatever is left.
func (m *member) remove() {
	m.end()
	for _, l := range m.all() {
		l.Kill()
	}
	m.kubelet.Wait()
	m.proxy.Close()
}

// stopLimit is how long a member may take to get to the place where it stops itself: it has to have something to write.
const stopLimit = 20 * time.Second

// pause stops the process at a place, once it gets there with the Website of that name, and continues it after d.
func (m *member) pause(ctx context.Context, place, name string, d time.Duration) error {
	return m.stop(ctx, place, name, func(from time.Duration) error { return await.Sleep(ctx, from+d-journal.Now()) })
}

// pauseUntil stops the process at a place, once it gets there with the duty of that name, and continues it when wait
// returns.
func (m *member) pauseUntil(ctx context.Context, place, name string, wait func() error) error {
	return m.stop(ctx, place, name, func(time.Duration) error { return wait() })
}

// stop has the process stop itself, and continues it when wait, which is told since when it has stopped, returns.
func (m *member) stop(ctx context.Context, place, name string, wait func(time.Duration) error) error {
	l := m.now()
	at, err := l.number(ctx, "stop "+place+" "+name, "stopping")
	if err != nil {
		return err
	}
	from := time.Duration(at)
	err = wait(from)
	p := oracle.Pause{Process: l.name, From: from, To: journal.Now()}
	err = errors.Join(err, l.Signal(syscall.SIGCONT))
	m.mu.Lock()
	m.pauses = append(m.pauses, p)
	m.mu.Unlock()
	return err
}

// stopped returns the times for which processes of the Pod were stopped.
func (m *member) stopped() []oracle.Pause {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.pauses)
}

// goroutines returns how many the process has.
func (m *member) goroutines(ctx context.Context) (int, error) {
	return m.now().number(ctx, "status", "status")
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
