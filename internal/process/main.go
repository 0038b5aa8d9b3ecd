package process

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

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
