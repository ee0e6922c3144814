package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"

	"github.com/go-logr/logr"
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
	v1 "github.com/holdfast-storage/holdfast/api/v1"
)

// kubeAccess is how the program reaches the API server.
type kubeAccess struct {
	kubeconfig string
	namespace  string
}

func kubeFlags(flags *flag.FlagSet) *kubeAccess {
	k := &kubeAccess{}
	flags.StringVar(&k.kubeconfig, "kubeconfig", "", "`file` with the address and identity for the API server; the pod's own if empty")
	flags.StringVar(&k.namespace, "namespace", v1.DefaultNamespace, "`namespace` of the Leases")
	return k
}

// kubectl is how a command that a user calls reaches the API server: by the rules of kubectl.
type kubectl struct {
	kubeconfig string
	context    string
}

func kubectlFlags(flags *flag.FlagSet) *kubectl {
	k := &kubectl{}
	flags.StringVar(&k.kubeconfig, "kubeconfig", "", "`file` with the address and identity for the API server; if empty, $KUBECONFIG, ~/.kube/config, or the pod's own")
	flags.StringVar(&k.context, "context", "", "`name` of the context in the kubeconfig; the current one if empty")
	return k
}

func (k *kubectl) connection() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = k.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: k.context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("no way to the API server (give --kubeconfig, or set KUBECONFIG): %w", err)
	}
	return config, nil
}

// inProtobuf is for the kinds of Kubernetes, which have it, and cost less to read in it.
func inProtobuf(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	return config
}

// clients are the API as this program uses it.
type clients struct {
	holdfast   holdfast.Interface
	kubernetes kubernetes.Interface
	dynamic    dynamic.Interface
	events     record.EventRecorder
	broadcast  part // sends the events
}

// The limits of requests. They bound what a program that has gone wild can do; the API server shares out its own time.
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
		return nil, fmt.Errorf("no way to the API server (outside of a pod, give --kubeconfig): %w", err)
	}
	config.QPS, config.Burst, config.UserAgent = requestsPerSecond, requestBurst, component+"/"+version
	c := &clients{}
	if c.holdfast, err = holdfast.NewForConfig(config); err != nil {
		return nil, err
	}
	if c.kubernetes, err = kubernetes.NewForConfig(inProtobuf(config)); err != nil {
		return nil, err
	}
	if c.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	return c, c.recordEvents(component, log)
}

func (c *clients) recordEvents(component string, log *slog.Logger) error {
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1.AddToScheme} {
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

// logged hands the log to the Kubernetes libraries below a part. What other libraries log stays silent: see logger.
func logged(log *slog.Logger, p part) part {
	return func(ctx context.Context) error { return p(withLog(ctx, log)) }
}

func withLog(ctx context.Context, log *slog.Logger) context.Context {
	return klog.NewContext(ctx, logr.FromSlogHandler(log.Handler()))
}
