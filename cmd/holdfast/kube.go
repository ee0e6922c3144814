package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/report/facts"
)

// kubeAccess is how the program reaches the API server.
type kubeAccess struct {
	kubeconfig string
	namespace  string
}

func kubeFlags(flags *pflag.FlagSet) *kubeAccess {
	k := &kubeAccess{}
	flags.StringVar(&k.kubeconfig, "kubeconfig", "", "`file` with the address and identity for the API server; the pod's own if empty")
	flags.StringVar(&k.namespace, "namespace", v1beta1.DefaultNamespace, "`namespace` of the Leases")
	return k
}

// installation is how a command that a user calls reaches a cluster with Holdfast in it: by the rules of kubectl.
type installation struct {
	kubeconfig string
	context    string
	namespace  string // in which Holdfast runs
}

// clusterFlags leaves the namespace to the command.
func clusterFlags(flags *pflag.FlagSet) *installation {
	i := &installation{namespace: deploy.Namespace}
	flags.StringVar(&i.kubeconfig, "kubeconfig", "", "`file` with the address and identity for the API server; if empty, $KUBECONFIG, ~/.kube/config, or the pod's own")
	flags.StringVar(&i.context, "context", "", "`name` of the context in the kubeconfig; the current one if empty")
	return i
}

func installationFlags(flags *pflag.FlagSet) *installation {
	i := clusterFlags(flags)
	namespaceFlag(flags, &i.namespace)
	return i
}

func namespaceFlag(flags *pflag.FlagSet, namespace *string) {
	flags.StringVarP(namespace, "namespace", "n", deploy.Namespace, "`namespace` in which Holdfast runs")
}

// homeFlags is installationFlags for commands that are about objects in other namespaces, which -n names.
func homeFlags(flags *pflag.FlagSet) *installation {
	i := clusterFlags(flags)
	flags.StringVar(&i.namespace, "holdfast-namespace", deploy.Namespace, "`namespace` in which Holdfast runs")
	return i
}

// errNoCluster says that no cluster was named, by flag, file or environment.
var errNoCluster = errors.New("no configuration for the API server (give --kubeconfig, or set KUBECONFIG)")

func (i *installation) config() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = i.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: i.context})
}

func (i *installation) connection() (*rest.Config, error) {
	config := i.config()
	if err := i.checkContext(config); err != nil {
		return nil, notAsked(err)
	}
	c, err := config.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, notAsked(errNoCluster)
	}
	if err != nil {
		return nil, notAsked(fmt.Errorf("%w: %w", errNoCluster, err))
	}
	c.QPS, c.UserAgent = -1, "holdfast/"+version
	return c, checkUsable(c)
}

// checkUsable looks into what a configuration has: certificates, keys and the address, which are not looked at before a client
// is made of it.
func checkUsable(c *rest.Config) error {
	_, err := rest.HTTPClientFor(c)
	if err == nil {
		_, _, err = rest.DefaultServerUrlFor(c)
	}
	if err != nil {
		return notAsked(fmt.Errorf("the configuration for the API server cannot be used (look at the kubeconfig): %w", err))
	}
	return nil
}

// checkContext names the contexts that there are, if the requested one is not among them.
func (i *installation) checkContext(config clientcmd.ClientConfig) error {
	all, err := config.RawConfig()
	if err != nil {
		return fmt.Errorf("%w: %w", errNoCluster, err)
	}
	names := strings.Join(slices.Sorted(maps.Keys(all.Contexts)), ", ")
	name := cmp.Or(i.context, all.CurrentContext)
	switch {
	case all.Contexts[name] != nil, name == "" && names == "": // without a kubeconfig, it is the pod's own
		return nil
	case names == "":
		return fmt.Errorf("there is no context %q: the kubeconfig has none (give --kubeconfig, or set KUBECONFIG)", name)
	case name == "":
		return fmt.Errorf("the kubeconfig has no current context: give --context with one of %s", names)
	}
	return fmt.Errorf("there is no context %q in the kubeconfig: give --context with one of %s", name, names)
}

// inProtobuf is for the kinds of Kubernetes, which are cheaper to decode from protobuf.
func inProtobuf(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	return config
}

// part is something that runs as long as the process.
type part func(context.Context) error

// clients are the API as this program uses it.
type clients struct {
	holdfast   holdfast.Interface
	kubernetes kubernetes.Interface
	dynamic    dynamic.Interface
	events     record.EventRecorder
	broadcast  part // sends the events
}

// The limits of requests. They restrict a program with a bug; the API server has a priority and fairness of its own.
const (
	requestsPerSecond = 200
	requestBurst      = 400
)

func (k *kubeAccess) connect(component string, log *slog.Logger) (*clients, error) {
	var config *rest.Config
	var err error
	if k.kubeconfig == "" {
		config, err = rest.InClusterConfig()
	} else {
		config, err = clientcmd.BuildConfigFromFlags("", k.kubeconfig)
	}
	if err != nil {
		return nil, notAsked(fmt.Errorf("no configuration for the API server (outside of a pod, give --kubeconfig): %w", err))
	}
	if err := checkUsable(config); err != nil {
		return nil, err
	}
	config.QPS, config.Burst, config.UserAgent = requestsPerSecond, requestBurst, component+"/"+version
	all, err := clientsFor(config)
	if err != nil {
		return nil, err
	}
	c := &clients{holdfast: all.Holdfast, kubernetes: all.Kubernetes, dynamic: all.Dynamic}
	return c, c.recordEvents(component, log)
}

// clientsFor reads the kinds of Kubernetes from protobuf.
func clientsFor(config *rest.Config) (c facts.Clients, err error) {
	if c.Holdfast, err = holdfast.NewForConfig(config); err != nil {
		return c, err
	}
	if c.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		return c, err
	}
	c.Kubernetes, err = kubernetes.NewForConfig(inProtobuf(config))
	return c, err
}

func (c *clients) recordEvents(component string, log *slog.Logger) error {
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1beta1.AddToScheme} {
		if err := add(kinds); err != nil {
			return err
		}
	}
	broadcaster := record.NewBroadcaster(record.WithContext(withLog(context.Background(), log)))
	broadcaster.StartRecordingToSink(&typed.EventSinkImpl{Interface: c.kubernetes.CoreV1().Events("")})
	c.events = broadcaster.NewRecorder(kinds, core.EventSource{Component: component})
	c.broadcast = func(ctx context.Context) error {
		<-ctx.Done()
		broadcaster.Shutdown()
		return nil
	}
	return nil
}

// logged hands the log to the Kubernetes libraries below a part. The logs of other libraries are discarded: see
// silenceLibraries.
func logged(log *slog.Logger, p part) part {
	return func(ctx context.Context) error { return p(withLog(ctx, log)) }
}

func withLog(ctx context.Context, log *slog.Logger) context.Context {
	return klog.NewContext(ctx, logr.FromSlogHandler(log.Handler()))
}
