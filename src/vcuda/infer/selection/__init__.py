"""What is chosen by default: the model and the scale of the columns by evidence, the engine by size.

``models`` compares by ``evidence`` and says the result in sentences, ``logarithms`` decides the scale of each column,
``engines`` knows from where on which engine serves best.
"""
