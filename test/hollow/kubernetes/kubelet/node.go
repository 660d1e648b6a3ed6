// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// kubeletPort is where a real kubelet would listen.
	kubeletPort = 10250
	maxPods     = 110
	// ephemeralBytes is the capacity of a small system disk, 100 GiB.
	ephemeralBytes = 100 << 30

	reasonNetworkNotReady = "KubeletNotReady"
	messageNetwork        = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady " +
		"message:Network plugin returns error: cni plugin not initialized"
)

// Facts are what a node says of itself.
type Facts struct {
	CPUs        int
	MemoryBytes uint64
	// MachineID, SystemUUID and BootID are as in status.nodeInfo.
	MachineID, SystemUUID, BootID string
	// OSImage is for instance Talos (v1.13.9), KubeletVersion v1.36.1.
	OSImage, KubeletVersion string
}

// errDeleted ends a round: a kubelet registers once in its life, so who deletes a Node must restart its kubelet.
var errDeleted = errors.New("the node was deleted")

// register creates the Node, or adopts the one that is there, as after a reboot.
func (k *Kubelet) register(ctx context.Context) error {
	nodes := k.client.CoreV1().Nodes()

	node, err := nodes.Create(ctx, k.newNode(), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		node, err = nodes.Get(ctx, k.options.NodeName, metav1.GetOptions{})
	}

	if err != nil {
		return fmt.Errorf("register node %s: %w", k.options.NodeName, err)
	}

	k.lease.owner = node.UID
	// A new boot reports its status at once, be it equal to the stored one.
	k.reported = time.Time{}
	k.setState(State{Registered: true, Ready: isReady(node)})

	return nil
}

func (k *Kubelet) newNode() *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: k.options.NodeName,
			Labels: map[string]string{
				"beta.kubernetes.io/arch": runtime.GOARCH,
				"beta.kubernetes.io/os":   "linux",
				corev1.LabelArchStable:    runtime.GOARCH,
				corev1.LabelHostname:      k.options.NodeName,
				corev1.LabelOSStable:      "linux",
			},
		},
	}

	if k.options.ControlPlane && !k.options.Schedulable {
		// Registered with the node, so that nothing is scheduled before machined applies it again (Talos:
		// k8s/kubelet_spec.go).
		node.Spec.Taints = []corev1.Taint{{Key: constants.LabelNodeRoleControlPlane, Effect: corev1.TaintEffectNoSchedule}}
	}

	k.fill(&node.Status, time.Now())

	return node
}

// report reads the Node and writes its status if it differs from what is true, or if it is time to. It returns the Node.
func (k *Kubelet) report(ctx context.Context) (*corev1.Node, error) {
	nodes := k.client.CoreV1().Nodes()

	// Version 0 is answered from the API server's cache, as kubelets ask, too. A cache may not know a new Node yet.
	node, err := nodes.Get(ctx, k.options.NodeName, metav1.GetOptions{ResourceVersion: "0"})
	if apierrors.IsNotFound(err) {
		node, err = nodes.Get(ctx, k.options.NodeName, metav1.GetOptions{})
	}

	if apierrors.IsNotFound(err) {
		k.deleted = true
		k.setState(State{})
		k.options.Logger.Warn("the node was deleted; it registers again when its kubelet restarts", "node", k.options.NodeName)

		return nil, errDeleted
	}

	if err != nil {
		return nil, fmt.Errorf("get node %s: %w", k.options.NodeName, err)
	}

	wanted := node.DeepCopy()
	k.fill(&wanted.Status, time.Now())

	if time.Since(k.reported) < statusEvery && sameStatus(&node.Status, &wanted.Status) {
		k.setState(State{Registered: true, Ready: isReady(node)})

		return node, nil
	}

	updated, err := k.patchStatus(ctx, &wanted.Status)
	if err != nil {
		return nil, fmt.Errorf("report status of node %s: %w", k.options.NodeName, err)
	}

	k.reported = time.Now()
	k.setState(State{Registered: true, Ready: isReady(updated)})

	return updated, nil
}

// patchStatus writes what the kubelet knows and leaves the rest, such as the conditions of a network plugin. An update
// of the whole object would be refused when the copy it starts from has taints that are gone.
func (k *Kubelet) patchStatus(ctx context.Context, status *corev1.NodeStatus) (*corev1.Node, error) {
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"capacity": status.Capacity, "allocatable": status.Allocatable, "conditions": status.Conditions,
		"addresses": status.Addresses, "daemonEndpoints": status.DaemonEndpoints, "nodeInfo": status.NodeInfo,
	}})
	if err != nil {
		return nil, fmt.Errorf("encode status: %w", err)
	}

	return k.client.CoreV1().Nodes().PatchStatus(ctx, k.options.NodeName, patch)
}

// fill writes what is true of the node into a status.
func (k *Kubelet) fill(status *corev1.NodeStatus, now time.Time) {
	facts := k.options.Facts

	status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(facts.CPUs), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(int64(facts.MemoryBytes), resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(maxPods, resource.DecimalSI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(ephemeralBytes, resource.BinarySI),
	}
	status.Allocatable = k.allocatable(status.Capacity)
	status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: k.options.Address.String()},
		{Type: corev1.NodeHostName, Address: k.options.NodeName},
	}
	status.DaemonEndpoints.KubeletEndpoint.Port = kubeletPort
	status.NodeInfo = corev1.NodeSystemInfo{
		MachineID: facts.MachineID, SystemUUID: facts.SystemUUID, BootID: facts.BootID,
		KernelVersion: constants.DefaultKernelVersion, OSImage: facts.OSImage,
		ContainerRuntimeVersion: "containerd://" + constants.DefaultContainerdVersion,
		KubeletVersion:          facts.KubeletVersion,
		OperatingSystem:         "linux", Architecture: runtime.GOARCH,
	}

	for _, pressure := range []struct {
		kind            corev1.NodeConditionType
		reason, message string
	}{
		{corev1.NodeMemoryPressure, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"},
		{corev1.NodeDiskPressure, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"},
		{corev1.NodePIDPressure, "KubeletHasSufficientPID", "kubelet has sufficient PID available"},
	} {
		setCondition(status, now, pressure.kind, corev1.ConditionFalse, pressure.reason, pressure.message)
	}

	if k.options.NoCNI {
		setCondition(status, now, corev1.NodeReady, corev1.ConditionFalse, reasonNetworkNotReady, messageNetwork)
	} else {
		setCondition(status, now, corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status")
	}
}

// allocatable is the capacity without what Talos reserves for the system.
func (k *Kubelet) allocatable(capacity corev1.ResourceList) corev1.ResourceList {
	memory := constants.KubeletSystemReservedMemoryWorker
	if k.options.ControlPlane {
		memory = constants.KubeletSystemReservedMemoryControlPlane
	}

	allocatable := capacity.DeepCopy()

	for name, reserved := range map[corev1.ResourceName]string{
		corev1.ResourceCPU: constants.KubeletSystemReservedCPU, corev1.ResourceMemory: memory,
		corev1.ResourceEphemeralStorage: constants.KubeletSystemReservedEphemeralStorage,
	} {
		rest := allocatable[name]
		rest.Sub(resource.MustParse(reserved))

		if rest.Sign() < 0 {
			rest.Set(0)
		}

		allocatable[name] = rest
	}

	return allocatable
}

// setCondition sets a condition; its transition time moves only when its status does.
func setCondition(
	status *corev1.NodeStatus, now time.Time, kind corev1.NodeConditionType, value corev1.ConditionStatus, reason, message string,
) {
	condition := corev1.NodeCondition{
		Type: kind, Status: value, Reason: reason, Message: message,
		LastHeartbeatTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(now),
	}

	for i := range status.Conditions {
		if status.Conditions[i].Type != kind {
			continue
		}

		if status.Conditions[i].Status == value {
			condition.LastTransitionTime = status.Conditions[i].LastTransitionTime
		}

		status.Conditions[i] = condition

		return
	}

	status.Conditions = append(status.Conditions, condition)
}

// sameStatus compares two statuses without their heartbeat times.
func sameStatus(a, b *corev1.NodeStatus) bool {
	strip := func(status *corev1.NodeStatus) *corev1.NodeStatus {
		status = status.DeepCopy()
		for i := range status.Conditions {
			status.Conditions[i].LastHeartbeatTime = metav1.Time{}
		}

		return status
	}

	return equality.Semantic.DeepEqual(strip(a), strip(b))
}

func isReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}

	return false
}

// sayFarewell marks the node NotReady while it shuts down in order. It is best effort: the API server may be gone.
func (k *Kubelet) sayFarewell(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, farewellTimeout)
	defer cancel()

	node, err := k.client.CoreV1().Nodes().Get(ctx, k.options.NodeName, metav1.GetOptions{})
	if err != nil {
		return
	}

	setCondition(&node.Status, time.Now(), corev1.NodeReady, corev1.ConditionFalse, "KubeletNotReady", "node is shutting down")

	if _, err = k.patchStatus(ctx, &node.Status); err != nil {
		k.options.Logger.Debug("node went down without a word", "node", k.options.NodeName, "error", err)
	}
}
