package neighbor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/process"
)

// The processors of Options.Apart: one for the replica whose controller is flooded, one for everything else.
const (
	floodedCPU = "0"
	otherCPU   = "1"
)

// busyTime is how long a flood lasts that shows which replica works on it.
const busyTime = 3 * time.Second

// cpuQuestion has a replica tell how much processor time it has used, pinCommand have it run on some processors only.
const cpuQuestion, pinCommand = "cpu", "pin"

// answer is a replica's answer to a line of its standard input.
func answer(line string) string {
	switch command, rest, _ := strings.Cut(line, " "); command {
	case cpuQuestion:
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			return ""
		}
		return cpuQuestion + " " + time.Duration(u.Utime.Nano()+u.Stime.Nano()).String()
	case pinCommand:
		if err := pin(context.Background(), os.Getpid(), rest); err != nil {
			return pinCommand + " " + err.Error()
		}
		return pinCommand + " ok"
	}
	return ""
}

// pin has a process run on some processors only.
func pin(ctx context.Context, pid int, cpus string) error {
	out, err := exec.CommandContext(ctx, "taskset", "-acp", cpus, strconv.Itoa(pid)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("taskset -acp %s %d: %w: %s", cpus, pid, err, out)
	}
	return nil
}

// apart finds the replica that works on the flood, and gives it a processor of its own. servers are processes that get
// the other one, as this process does.
func apart(ctx context.Context, running []*process.Process, servers []int, flood func(context.Context)) error {
	before, err := used(ctx, running)
	if err != nil {
		return err
	}
	flooding, end := context.WithCancel(ctx)
	defer end()
	go flood(flooding)
	if err := await.Sleep(ctx, busyTime); err != nil {
		return err
	}
	end()
	after, err := used(ctx, running)
	if err != nil {
		return err
	}
	for i := range after {
		after[i] -= before[i]
	}
	busiest := slices.Index(after, slices.Max(after))
	for i, p := range running {
		cpus := otherCPU
		if i == busiest {
			cpus = floodedCPU
		}
		result, err := ask(ctx, p, pinCommand+" "+cpus, pinCommand)
		if err == nil && result != "ok" {
			err = fmt.Errorf("pin a replica: %s", result)
		}
		if err != nil {
			return err
		}
	}
	for _, pid := range append(servers, os.Getpid()) {
		if err := pin(ctx, pid, otherCPU); err != nil {
			return err
		}
	}
	return nil
}

// used returns the processor time that each replica has used.
func used(ctx context.Context, running []*process.Process) ([]time.Duration, error) {
	var out []time.Duration
	for _, p := range running {
		text, err := ask(ctx, p, cpuQuestion, cpuQuestion)
		if err != nil {
			return nil, err
		}
		d, err := time.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("processor time of a replica: %w", err)
		}
		out = append(out, d)
	}
	return out, nil
}

// ask is Process.Ask with a time limit.
func ask(ctx context.Context, p *process.Process, line, word string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	return p.Ask(ctx, line, word)
}
