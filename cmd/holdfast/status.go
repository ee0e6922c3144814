package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/driver"
	"github.com/holdfast-storage/holdfast/report/doctor"
	"github.com/holdfast-storage/holdfast/report/status"
)

var statusCommand = command{
	name:    "status",
	summary: "Show how the storage of a cluster is",
	text: `
The StorageCluster, its nodes and pools, the volumes that are not well, and the last warnings. The exit code is 0 if all
is well and 1 if not. As a file named kubectl-holdfast in the PATH, this program is also kubectl holdfast.

  holdfast status
  kubectl holdfast status -o json
`,
	prepare: func(flags *flag.FlagSet) func(context.Context, io.Writer) error {
		v := viewFlags(flags)
		return v.status
	},
}

var doctorCommand = command{
	name:    "doctor",
	summary: "Look for what commonly goes wrong with a cluster's storage, and say what to do",
	text: `
It reads, and changes nothing. The exit code is 0 unless there is a problem; warnings and notes are none.

  holdfast doctor
  kubectl holdfast doctor -o json
`,
	prepare: func(flags *flag.FlagSet) func(context.Context, io.Writer) error {
		v := viewFlags(flags)
		flags.StringVar(&v.driver, "driver-name", driver.DefaultName, "`name` of the driver, as StorageClasses have it")
		return v.doctor
	},
}

// view is how a user looks at a cluster.
type view struct {
	*kubectl
	namespace string
	output    string
	driver    string
}

func viewFlags(flags *flag.FlagSet) *view {
	v := &view{kubectl: kubectlFlags(flags)}
	flags.StringVar(&v.namespace, "namespace", deploy.Namespace, "`namespace` in which Holdfast runs")
	for _, name := range []string{"output", "o"} {
		flags.StringVar(&v.output, name, "table", "`format` of the answer: table or json")
	}
	return v
}

var (
	errNotWell = errors.New("not all is well")
	errIll     = errors.New("there are problems")
)

func (v *view) clients() (doctor.Clients, error) {
	if v.output != "table" && v.output != "json" {
		return doctor.Clients{}, fmt.Errorf("--output %q: it must be table or json: %w", v.output, errUsage)
	}
	config, err := v.connection()
	if err != nil {
		return doctor.Clients{}, err
	}
	config.QPS, config.UserAgent = -1, "holdfast/"+version
	c := doctor.Clients{}
	if c.Holdfast, err = holdfast.NewForConfig(config); err != nil {
		return c, err
	}
	if c.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		return c, err
	}
	c.Kubernetes, err = kubernetes.NewForConfig(inProtobuf(config))
	return c, err
}

func (v *view) status(ctx context.Context, out io.Writer) error {
	c, err := v.clients()
	if err != nil {
		return err
	}
	report, err := status.Look(ctx, c.Holdfast, c.Kubernetes, v.namespace)
	if err != nil {
		return err
	}
	if v.output == "json" {
		err = writeJSON(out, report)
	} else {
		err = report.Text(out, time.Now())
	}
	if err == nil && !report.Well {
		return errNotWell
	}
	return err
}

func (v *view) doctor(ctx context.Context, out io.Writer) error {
	c, err := v.clients()
	if err != nil {
		return err
	}
	facts, err := doctor.Gather(ctx, c, v.namespace, v.driver)
	if err != nil {
		return err
	}
	findings := doctor.Examine(facts)
	if v.output == "json" {
		err = writeJSON(out, findings)
	} else {
		err = doctor.Text(out, findings)
	}
	if err == nil && doctor.Ill(findings) {
		return errIll
	}
	return err
}

func writeJSON(out io.Writer, value any) error {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(value)
}
