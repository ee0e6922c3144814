package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	coordination "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	kubelet "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/driver"
	"github.com/holdfast-storage/holdfast/test/rig/alongside"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// process is a process of Holdfast that runs in the test.
type process struct {
	*testing.T
	*monitoring
	dir  string // short, for sockets
	stop func() // called at the end of the test at the latest
}

// noServer is an API server that is away.
const noServer = "http://127.0.0.1:1"

// startProcess runs a subcommand with the API server at a URL.
func startProcess(t *testing.T, name, server string, more ...string) *process {
	t.Helper()
	dir := check.Got(os.MkdirTemp("", "process"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	at := func(file string) string { return filepath.Join(dir, file) }
	for file, content := range map[string]string{
		"kubeconfig":    onlyServer(server),
		"none.json":     `{"pools": []}`,
		"selected.json": `{"pools": [{"name": "a", "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}]}`,
	} {
		check.OK(t, os.WriteFile(at(file), []byte(content), 0o600))
	}
	flags := pflag.NewFlagSet(name, pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	p := &process{T: t, dir: dir}
	var run func(context.Context) error
	args := []string{"--log-level=error"}
	switch name {
	case "controller":
		c := controllerFlags(flags)
		p.monitoring, run = c.monitoring, c.run
		args = append(args, "--kubeconfig="+at("kubeconfig"), "--endpoint=unix://"+at("csi.sock"), "--api-address=127.0.0.1:0")
	case "node":
		n := nodeFlags(flags)
		p.monitoring, run = n.monitoring, n.main
		args = append(args, "--kubeconfig="+at("kubeconfig"), "--node-name=a", "--config="+at("none.json"), "--state-dir="+at("state"), "--endpoint=unix://"+at("csi.sock"), "--kubelet-registration-dir="+dir)
	case "nfs":
		n := nfsFlags(flags)
		p.monitoring, run = n.monitoring, n.run
		args = append(args, "--kubeconfig="+at("kubeconfig"), "--server=team/files", "--data="+at("data"), "--run-dir="+at("run"))
	case "standalone":
		h := standaloneFlags(flags)
		p.monitoring, run = h.monitoring, h.alone
		check.OK(t, os.Mkdir(at("pool"), 0o700))
		args = append(args, "--node-id=a", "--pool=name=a,path="+at("pool"), "--endpoint=unix://"+at("csi.sock"))
	}
	for _, arg := range more {
		args = append(args, strings.ReplaceAll(arg, "DIR", dir))
	}
	check.OK(t, flags.Parse(args))
	openPort(t, p.monitoring)
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = alongside.Run(ctx, t, cancel, func(ctx context.Context) error {
		if err := run(ctx); ctx.Err() == nil || !errors.Is(err, context.Canceled) {
			return err
		}
		return nil // it ended while it waited for the API server
	})
	return p
}

// passed are the checks of a path, each with a + if it passes and a - otherwise.
func (p *process) passed(path string) string {
	p.Helper()
	status, body := fetch(p.T, p.address, path+"?verbose")
	var checks []string
	fails := false
	for line := range strings.Lines(body) {
		if name, is := strings.CutPrefix(line, "[+]"); is {
			checks = append(checks, "+"+strings.Fields(name)[0])
		} else if name, is := strings.CutPrefix(line, "[-]"); is {
			checks, fails = append(checks, "-"+strings.Fields(name)[0]), true
		}
	}
	if want := map[bool]int{true: http.StatusInternalServerError, false: http.StatusOK}[fails]; status != want {
		p.Errorf("%s: %d %s", path, status, body)
	}
	return strings.Join(checks, " ")
}

func (p *process) awaitReady(want string) {
	p.Helper()
	wait.Until(p.T, "the checks "+want, func() bool { return p.passed("/readyz") == want })
}

// lonely are all processes, and what they report while the API server is away, for which none may be restarted.
var lonely = map[string]struct {
	process string
	args    []string
	live    string
	ready   string
}{
	"controller":                            {"controller", nil, "+ping +csi", "+ping -csi -informer-sync"},
	"operator":                              {"controller", []string{"--operator-alone"}, "+ping", "+ping"},
	"node whose pools depend on its labels": {"node", []string{"--config=DIR/selected.json"}, "+ping +csi +kubelet-registration", "+ping -csi -pools -kubelet-registration"},
	"node":                                  {"node", []string{"--register-driver=false"}, "+ping +csi", "+ping +csi +pools"},
	"loop-sets":                             {"node", []string{"--only-loop-sets"}, "+ping +kubelet-registration", "+ping -kubelet-registration"},
	"nfs":                                   {"nfs", nil, "+ping", "+ping -nfs -pool"},
	"standalone":                            {"standalone", nil, "+ping +csi", "+ping +csi +pools"},
}

func TestHealth_NodeIsReadyWhenTheKubeletKnowsItAndStuckWhenItCannotAnyMore(t *testing.T) {
	p := startProcess(t, "node", noServer)
	p.awaitReady("+ping +csi +pools -kubelet-registration")
	socket := filepath.Join(p.dir, driver.DefaultName+"-reg.sock")
	conn := check.Got(grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true))))(t)
	defer conn.Close()
	check.Got(kubelet.NewRegistrationClient(conn).NotifyRegistrationStatus(t.Context(), &kubelet.RegistrationStatus{PluginRegistered: true}))(t)
	p.awaitReady("+ping +csi +pools +kubelet-registration")
	check.OK(t, os.Remove(socket))
	if live := p.passed("/livez"); live != "+ping +csi -kubelet-registration" {
		t.Errorf("without its socket: %s", live)
	}
}

func TestHealth_ControllerThatDoesNotLeadIsReady(t *testing.T) {
	api := newCluster(t)
	other := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: v1beta1.ControllerName, Namespace: v1beta1.DefaultNamespace}, Spec: coordination.LeaseSpec{
		HolderIdentity: new("another"), LeaseDurationSeconds: new(int32(3600)), RenewTime: new(metav1.NowMicro()), AcquireTime: new(metav1.NowMicro()),
	}}
	check.Got(kubernetes.NewForConfigOrDie(api.Config()).CoordinationV1().Leases(other.Namespace).Create(t.Context(), other, metav1.CreateOptions{}))(t)
	p := startProcess(t, "controller", api.URL(), "--operator=false")
	p.awaitReady("+ping +csi +informer-sync")
	if live := p.passed("/livez"); live != "+ping +csi" {
		t.Errorf("/livez: %s", live)
	}
}

func TestHealth_SocketThatNoLongerAnswersIsStuck(t *testing.T) {
	dir := check.Got(os.MkdirTemp("", "csi"))(t)
	defer os.RemoveAll(dir)
	endpoint := "unix://" + filepath.Join(dir, "csi.sock")
	p := &process{T: t, monitoring: monitoringFlags(pflag.NewFlagSet("", pflag.ContinueOnError))}
	check.OK(t, p.checkCSI(endpoint))
	openPort(t, p.monitoring)
	ctx, cancel := context.WithCancel(context.Background())
	alongside.Run(ctx, t, cancel, p.serve(quiet))
	if live, ready := p.passed("/livez"), p.passed("/readyz"); live != "+ping +csi" || ready != "+ping -csi" {
		t.Errorf("before it is served: %s, %s", live, ready)
	}
	socket := check.Got(new(net.ListenConfig).Listen(t.Context(), "unix", strings.TrimPrefix(endpoint, "unix://")))(t)
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, named{})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(socket) }()
	p.awaitReady("+ping +csi")
	server.Stop()
	if err := <-ended; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		t.Error(err)
	}
	if live, ready := p.passed("/livez"), p.passed("/readyz"); live != "+ping -csi" || ready != "+ping -csi" {
		t.Errorf("after it was served: %s, %s", live, ready)
	}
}

// named is a driver that knows its name and no more.
type named struct {
	csi.UnimplementedIdentityServer
}

func (named) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: "csi.example.org"}, nil
}
