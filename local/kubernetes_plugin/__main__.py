from __future__ import annotations

from local.kubernetes_plugin.provider import KubernetesProvider
from local.plugin import serve

serve(KubernetesProvider())
