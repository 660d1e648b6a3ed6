// SPDX-License-Identifier: Apache-2.0

// Command kube is kube-apiserver, kube-controller-manager, kube-scheduler and kubectl in one binary, for the local
// stack and the tests: one link instead of four, and the four share most of their code. It runs the component that its
// own name says (through a symbolic link), or else the one named by its first argument.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	_ "time/tzdata" // time zones of CronJobs, without a tzdata package on the machine

	"github.com/spf13/cobra"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubectl: authentication plugins
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// names are the components in the order the usage lists them.
var names = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"}

func main() {
	name, args, err := component(os.Args)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	// The commands read os.Args themselves; kubectl derives its plugins' names from it.
	os.Args = args
	switch name {
	case "kube-apiserver":
		runServer(apiserver.NewAPIServerCommand())
	case "kube-controller-manager":
		runServer(controllermanager.NewControllerManagerCommand())
	case "kube-scheduler":
		runServer(scheduler.NewSchedulerCommand())
	case "kubectl":
		runKubectl()
	}
}

// component finds which component args ask for and returns its name with the arguments as the component
// itself, started under that name, would see them.
func component(args []string) (string, []string, error) {
	if len(args) > 0 {
		if name := known(args[0]); name != "" {
			return name, args, nil
		}
	}
	if len(args) > 1 {
		if name := known(args[1]); name != "" {
			return name, args[1:], nil
		}
	}
	return "", nil, fmt.Errorf("usage: kube %s [ARGUMENTS]", strings.Join(names, "|"))
}

// known returns the component that path's last element names, or "".
func known(path string) string {
	base := filepath.Base(path)
	for _, name := range names {
		if base == name {
			return name
		}
	}
	return ""
}

func runServer(command *cobra.Command) {
	os.Exit(cli.Run(command))
}

func runKubectl() {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
}
