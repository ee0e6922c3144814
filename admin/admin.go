// Package admin has the commands of an administrator for the volumes of a cluster: list them, restore them from the
// trash, delete them, and adopt those without a claim.
package admin

import (
	"context"
	"fmt"
	"io"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/printable"
)

const (
	// DefaultTimeout is how long a command waits until its request is fulfilled.
	DefaultTimeout = 2 * time.Minute
	// trashWait is how long a command waits until the agent reports a deleted volume in its trash.
	trashWait = 10 * time.Second
	// goneWait is how long a command watches whether a deleted object is written again, unless the trash has it.
	goneWait = 5 * time.Second

	fieldManager = "holdfast-admin"
)

// Clients are the clients of a command.
type Clients struct {
	Holdfast   holdfast.Interface
	Kubernetes kubernetes.Interface
	Dynamic    dynamic.Interface
	// Controller impersonates the account of the controller: no other account may request that data is removed or
	// restored.
	Controller holdfast.Interface
	// Namespace is the one of that account, for messages.
	Namespace string
}

// Connect creates the clients of a user for an installation in a namespace.
func Connect(config *rest.Config, namespace string) (c Clients, err error) {
	c.Namespace = namespace
	if c.Holdfast, err = holdfast.NewForConfig(config); err != nil {
		return c, err
	}
	if c.Kubernetes, err = kubernetes.NewForConfig(config); err != nil {
		return c, err
	}
	if c.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		return c, err
	}
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: controllerAccount(namespace)}
	c.Controller, err = holdfast.NewForConfig(config)
	return c, err
}

func controllerAccount(namespace string) string {
	return "system:serviceaccount:" + namespace + ":" + v1beta1.ControllerName
}

// Config configures an Admin.
type Config struct {
	Clients
	// Out receives the results.
	Out io.Writer
	// Progress shows what the command waits for, whenever that changes.
	Progress func(state string) error
	// Confirm asks a question and returns the line that the user types. Nil: there is no terminal.
	Confirm func(ctx context.Context, question string) (string, error)
	// Timeout is how long the command waits.
	Timeout time.Duration
}

// Admin executes one command.
type Admin struct {
	Config
	unsaid error // of the first output that could not be written
}

// sayf prints to a terminal, and some of args are text of others. A command that prints ends with unsaid.
func (a *Admin) sayf(format string, args ...any) {
	if a.unsaid == nil {
		_, a.unsaid = io.WriteString(a.Out, printable.Lines(fmt.Sprintf(format+"\n", args...)))
	}
}
