def drawn(): return ""
