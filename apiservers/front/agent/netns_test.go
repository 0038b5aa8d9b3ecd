package agent

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rota-dev/rota/apiservers/front/fronttest"
)

// envInside says that this process is in a network of its own.
const envInside = "ROTA_FRONT_INSIDE"

// TestMain runs the tests in a network of their own. EndpointSlices may not have loopback addresses, so the servers need
// others, and this machine's own addresses are not for tests: there is only a loopback interface inside, which has all
// of 10.0.0.0/8, too.
func TestMain(m *testing.M) {
	if os.Getenv(envInside) != "" {
		if err := setUp(); err != nil {
			fmt.Fprintln(os.Stderr, "the network of these tests:", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), envInside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if id := os.Getuid(); id != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM) // the child gets them, too, or dies with this process
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit):
		os.Exit(max(1, exit.ExitCode()))
	default: // not permitted here; needInside skips the tests that need it
		os.Exit(m.Run())
	}
}

// needInside skips a test that needs a network of its own.
func needInside(t *testing.T) {
	t.Helper()
	if os.Getenv(envInside) == "" {
		fronttest.Skip(t, "this machine does not let tests make a network of their own (unshare --net)")
	}
}

// setUp brings up the loopback interface, and gives it 10.0.0.0/8.
func setUp() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	flags, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	flags.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, flags); err != nil {
		return err
	}
	alias, err := unix.NewIfreq("lo:1")
	if err != nil {
		return err
	}
	if err := alias.SetInet4Addr([]byte{10, 0, 0, 1}); err != nil {
		return err
	}
	return unix.IoctlIfreq(socket, unix.SIOCSIFADDR, alias)
}
