package process

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
)

// Main is the main function of a process that Start starts. It decodes the environment variable into config (by names
// the command that sets it), has controller-runtime log for people, and calls run, whose context ends with SIGTERM. It
// returns the exit status.
func Main(variable, by string, config any, run func(context.Context) error, opts ...zap.Opts) int {
	if err := json.Unmarshal([]byte(os.Getenv(variable)), config); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v; %s sets it\n", variable, err, by)
		return 2
	}
	log.SetLogger(zap.New(append(opts, zap.ConsoleEncoder())...))
	if err := run(signals.SetupSignalHandler()); err != nil {
		log.Log.Error(err, "The operator ends")
		return 1
	}
	return 0
}

// Interruptible returns the context of a command that starts processes. It ends with Ctrl-C and SIGTERM; a second one
// ends the command at once. Logs of libraries in the command are dropped: the processes have their own.
func Interruptible() (ctx context.Context, stop context.CancelFunc) {
	ctx, stop = signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	return ctx, stop
}

// Command returns a program and its arguments as they are; where there are none, this program with args.
func Command(command []string, args ...string) ([]string, error) {
	if len(command) > 0 {
		return command, nil
	}
	self, err := os.Executable()
	return append([]string{self}, args...), err
}

// EndWithInput ends this process with a status when its standard input ends, so also when the process that started it
// dies. Lines from there are ignored.
func EndWithInput(status int) { Answer(status, func(string) string { return "" }) }

// Answer is EndWithInput for a process that Ask talks to: it prints what answer returns for a line, unless that is "".
func Answer(status int, answer func(line string) string) {
	go func() {
		for scan := bufio.NewScanner(os.Stdin); scan.Scan(); {
			if text := answer(scan.Text()); text != "" {
				fmt.Println(text)
			}
		}
		os.Exit(status)
	}()
}
