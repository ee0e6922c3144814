package provisioner

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/backendtest"
	"github.com/holdfast-storage/holdfast/backend/export"
	"github.com/holdfast-storage/holdfast/test/rig/alongside"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/recorder"
)

func TestMain(m *testing.M) {
	// The library adds to the scheme, which has all kinds already, while clients of earlier tests may still read it.
	core.AddToScheme = func(*runtime.Scheme) error { return nil }
	os.Exit(hostfs.Inside(func() int { return realapi.Main(m) }))
}

const (
	gib     = 1 << 30
	address = "10.96.0.77"
)

// server is an NFS server with its disk, whose process can be started again and again.
type server struct {
	t       *testing.T
	config  Config
	disk    *disk
	events  *recorder.Recorder
	running *Provisioner
	stop    func()
}

func newServer(t *testing.T, client kubernetes.Interface) *server {
	s := &server{t: t, disk: &disk{Memory: backendtest.NewMemory()}, events: &recorder.Recorder{}}
	s.config = configOf(t, randomName(), s.disk, t.TempDir(), client)
	s.config.Events, s.config.Lease = s.events, 3*time.Second
	return s
}

// randomName is a provisioner of one test alone.
func randomName() string { return "nfs-" + rand.String(5) + ".holdfast.dev" }

// configOf is of one process of the server storage/main.
func configOf(t *testing.T, provisioner string, volumes Storage, state string, client kubernetes.Interface) Config {
	return Config{
		Name: provisioner, Identity: "storage/main", Servers: servers{isDefault: true, named: "main"}, Address: address, Path: export.PathOf,
		Backend: volumes, StateDir: state, Metrics: NewMetrics(),
		Made: func(backend.SourceKind, backend.ID) {}, Forget: func(context.Context, backend.ID) error { return nil },
		Client: client, Namespace: realapi.Namespace, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Lease: time.Second, RetryFirst: 20 * time.Millisecond, RetryLast: 500 * time.Millisecond,
	}
}

// servers is what a server knows of all.
type servers struct {
	isDefault    bool
	named, known string
	refusal      func() error
}

func (s servers) IsDefault() bool          { return s.isDefault }
func (s servers) IsNamed(name string) bool { return name == s.named }
func (s servers) Known(server string) bool { return s.known == "" || server == s.known }

func (s servers) Refusal() error {
	if s.refusal == nil {
		return nil
	}
	return s.refusal()
}

// quiet is a server, changed as a test needs it, whose provisioner does not run, and holds its Lease all the same.
func quiet(t *testing.T, change ...func(*server)) (*server, *Provisioner) {
	t.Helper()
	s := newServer(t, fake.NewClientset())
	for _, f := range change {
		f(s)
	}
	return s, s.made()
}

// made is another process of a quiet server.
func (s *server) made() *Provisioner {
	s.t.Helper()
	p := check.Got(New(s.config))(s.t)
	s.t.Cleanup(func() { p.journal.close() })
	p.gate.open(s.t.Context())
	return p
}

// start runs a process of the server until the test ends or it is stopped.
func (s *server) start() *Provisioner {
	s.t.Helper()
	p := check.Got(New(s.config))(s.t)
	s.run(p)
	return p
}

func (s *server) run(p *Provisioner) {
	ctx, cancel := context.WithCancel(context.Background())
	s.running, s.stop = p, alongside.Run(ctx, s.t, cancel, p.Run)
}

// disk is a memory backend that can be slow, fail, and report its calls.
type disk struct {
	*backendtest.Memory

	mu    sync.Mutex
	calls []string
	on    func(ctx context.Context, call string) error // before each call; nil lets it through
}

func (d *disk) before(ctx context.Context, call string) error {
	d.mu.Lock()
	d.calls = append(d.calls, call)
	on := d.on
	d.mu.Unlock()
	if on == nil {
		return nil
	}
	return on(ctx, call)
}

func (d *disk) hook(on func(ctx context.Context, call string) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.on = on
}

// fails lets each call of a name end with an error, and no other.
func (d *disk) fails(name string, with error) {
	d.hook(func(_ context.Context, call string) error {
		if call == name {
			return with
		}
		return nil
	})
}

func (d *disk) called(call string) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.calls {
		if c == call {
			n++
		}
	}
	return n
}

func (d *disk) Create(ctx context.Context, spec backend.VolumeSpec) (*backend.Volume, error) {
	if err := d.before(ctx, "create"); err != nil {
		return nil, err
	}
	v, err := d.Memory.Create(ctx, spec)
	if err := d.before(ctx, "created"); err != nil {
		return nil, err
	}
	return v, err
}

func (d *disk) Delete(ctx context.Context, id backend.ID) error {
	if err := d.before(ctx, "delete"); err != nil {
		return err
	}
	err := d.Memory.Delete(ctx, id)
	return errors.Join(err, d.before(ctx, "deleted"))
}

func (d *disk) Get(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	if err := d.before(ctx, "get"); err != nil {
		return nil, err
	}
	return d.Memory.Get(ctx, id)
}

func (d *disk) Snapshot(ctx context.Context, spec backend.SnapshotSpec) (*backend.Snapshot, error) {
	if err := d.before(ctx, "snapshot"); err != nil {
		return nil, err
	}
	return d.Memory.Snapshot(ctx, spec)
}

// volumes are the IDs of what is on the disk.
func (d *disk) volumes() []string {
	all, _ := d.List(context.Background()) // it never fails
	var ids []string
	for _, v := range all {
		ids = append(ids, string(v.ID))
	}
	return ids
}

func (d *disk) volume(id string) *backend.Volume {
	v, err := d.Memory.Get(context.Background(), backend.ID(id))
	if err != nil {
		return &backend.Volume{}
	}
	return v
}

// options makes a claim and a class as the library hands them over.
func options(parameters map[string]string, change ...func(*controller.ProvisionOptions)) controller.ProvisionOptions {
	class, uid := "shared", types.UID("6b1f7a52-0f5e-4c59-9a8e-5d8f0c0d9d11")
	o := controller.ProvisionOptions{
		PVName:       "pvc-" + string(uid),
		StorageClass: &storage.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Parameters: parameters},
		PVC: &core.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data", UID: uid},
			Spec: core.PersistentVolumeClaimSpec{
				StorageClassName: &class,
				AccessModes:      []core.PersistentVolumeAccessMode{core.ReadWriteMany},
				Resources:        core.VolumeResourceRequirements{Requests: core.ResourceList{core.ResourceStorage: resource.MustParse("1Gi")}},
			},
		},
	}
	for _, f := range change {
		f(&o)
	}
	return o
}

// ofMain ends the names of the PersistentVolumes of the server of newServer.
const ofMain = ".storage.main.nfs.holdfast.dev"

// volumeOf is the volume of a PersistentVolume of this server.
func volumeOf(pv *core.PersistentVolume) backend.ID {
	return backend.ID(pv.Annotations[v1beta1.NFSVolumeAnnotation])
}

// provisioned is what the library gets for options, which must do.
func (p *Provisioner) provisioned(t *testing.T, o controller.ProvisionOptions) *core.PersistentVolume {
	t.Helper()
	pv, state, err := p.Provision(t.Context(), o)
	if err != nil || state != controller.ProvisioningFinished {
		t.Fatal(state, err)
	}
	return pv
}

// errIgnored stands for those that the library ignores.
var errIgnored = errors.New("ignored")

// isA says whether an error is of a kind, or of the kind nil is none.
func isA(err, kind error) bool {
	if errors.Is(kind, errIgnored) {
		_, is := err.(*controller.IgnoredError) //nolint:errorlint // as the library looks at it
		return is
	}
	return errors.Is(err, kind)
}
