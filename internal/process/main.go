package process

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// Main is the main function of a process that Start starts. It decodes into config what the environment variable holds, which who is
// said in by sets; it has controller-runtime log for people, and runs until SIGTERM. It returns the exit status.
func Main(variable, by string, config any, run func(context.Context) error, log ...zap.Opts) int {
	if err := json.Unmarshal([]byte(os.Getenv(variable)), config); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v; %s sets it\n", variable, err, by)
		return 2
	}
	ctrl.SetLogger(zap.New(append(log, zap.ConsoleEncoder())...))
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		ctrl.Log.Error(err, "The operator ends")
		return 1
	}
	return 0
}

// Interruptible returns the context of a command that starts processes. It ends at Ctrl-C and SIGTERM, a second of which ends
// the command at once. What libraries log in the command is dropped: the processes have logs of their own.
func Interruptible() (ctx context.Context, stop context.CancelFunc) {
	ctx, stop = signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	ctrl.SetLogger(logr.Discard())
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

// EndWithInput ends this process with a status when its standard input ends, so also when the one that started it dies. What
// comes from there is ignored.
func EndWithInput(status int) {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(status)
	}()
}
