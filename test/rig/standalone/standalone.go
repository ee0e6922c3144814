// Package standalone runs `holdfast standalone` as a process of its own and speaks CSI to it through its socket, for
// tests, the demonstration and the benchmark.
package standalone

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-storage/holdfast/nodeops/child"
)

// Options say what to run.
type Options struct {
	Binary  string   // from Binary or CrashingBinary
	Socket  string   // of the driver
	Pools   []string // values of --pool
	Args    []string
	Env     []string
	Log     io.Writer // gets the process's output too; may be nil
	Private bool      // gives the process a session of its own, which terminals do not interrupt
}

// Process is a running standalone.
type Process struct {
	csi.IdentityClient
	csi.ControllerClient
	csi.GroupControllerClient
	csi.NodeClient
	Conn *grpc.ClientConn

	cmd    *exec.Cmd
	output *buffer
	exited chan struct{}
	err    error // of Wait, once exited is closed
}

// What these name is not compiled again.
const (
	BinaryVariable         = "HOLDFAST_BINARY"
	CrashingBinaryVariable = "HOLDFAST_CRASHING_BINARY"
)

// Binary returns the path of the program that the environment names, or compiles it into dir.
func Binary(ctx context.Context, dir string) (string, error) { return binary(ctx, dir, BinaryVariable) }

// CrashingBinary returns that of the program that dies at a configured step.
func CrashingBinary(ctx context.Context, dir string) (string, error) {
	return binary(ctx, dir, CrashingBinaryVariable, "-tags", "crashpoints")
}

func binary(ctx context.Context, dir, variable string, flags ...string) (string, error) {
	if named := os.Getenv(variable); named != "" {
		return named, nil
	}
	path := filepath.Join(dir, "holdfast")
	argv := append([]string{"build", "-o", path}, flags...)
	if out, err := exec.CommandContext(ctx, "go", append(argv, "github.com/holdfast-storage/holdfast/cmd/holdfast")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, out)
	}
	return path, nil
}

// Patience is far more than the process takes for anything, also on a machine of which others have most.
const Patience = 5 * time.Minute

// Start starts the process and returns when it answers, or with what it printed when it does not.
func Start(ctx context.Context, o Options) (*Process, error) {
	args := []string{"standalone", "--endpoint", "unix://" + o.Socket, "--node-id", "node"}
	for _, pool := range o.Pools {
		args = append(args, "--pool", pool)
	}
	p := &Process{output: &buffer{}, exited: make(chan struct{})}
	p.cmd = exec.Command(o.Binary, append(args, o.Args...)...)
	p.cmd.Env = append(os.Environ(), o.Env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: o.Private}
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	if o.Log != nil {
		p.cmd.Stdout = io.MultiWriter(p.output, o.Log)
		p.cmd.Stderr = p.cmd.Stdout
	}
	ended, err := child.Start(p.cmd)
	if err != nil {
		return nil, err
	}
	go func() {
		p.err = <-ended
		close(p.exited)
	}()
	if err := p.connect(ctx, o.Socket); err != nil {
		p.Kill()
		return nil, fmt.Errorf("%w; it printed:\n%s", err, p.Output())
	}
	return p, nil
}

// connect waits until the process answers a probe or ends.
func (p *Process) connect(ctx context.Context, socket string) (err error) {
	p.Conn, err = grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			MinConnectTimeout: time.Second, Backoff: backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 1.6, MaxDelay: 100 * time.Millisecond},
		}))
	if err != nil {
		return err
	}
	p.IdentityClient, p.ControllerClient = csi.NewIdentityClient(p.Conn), csi.NewControllerClient(p.Conn)
	p.GroupControllerClient, p.NodeClient = csi.NewGroupControllerClient(p.Conn), csi.NewNodeClient(p.Conn)
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	go func() {
		select {
		case <-p.exited:
			cancel()
		case <-ctx.Done():
		}
	}()
	if _, err = p.Probe(ctx, &csi.ProbeRequest{}, grpc.WaitForReady(true)); err == nil {
		return nil
	}
	select {
	case <-p.exited:
		return fmt.Errorf("holdfast standalone ended: %w", p.err)
	default:
		return fmt.Errorf("holdfast standalone does not answer: %w", err)
	}
}

// Killed says whether the process ended by SIGKILL; it waits for the end.
func (p *Process) Killed() bool {
	<-p.exited
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// Kill ends the process with SIGKILL and waits for its end.
func (p *Process) Kill() {
	p.cmd.Process.Kill()
	<-p.exited
	p.disconnect()
}

// Stop asks the process to end and waits for it.
func (p *Process) Stop() error {
	defer p.disconnect()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.exited
	return p.err
}

func (p *Process) disconnect() {
	if p.Conn != nil {
		p.Conn.Close()
	}
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Output is what the process printed so far.
func (p *Process) Output() string { return p.output.String() }

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
